"""What a collision-avoidance network advises around the ownship, exactly, and what fifteen samples a line miss.

    python examples/acas.py [NETWORK.nnet]

Without a file it studies the small network that ships with exactline, which is not ACAS Xu.
`exactline study acas --out DIR` draws all this.
"""

import sys

import exactline as xl

study = xl.studies.acas.run(sys.argv[1] if len(sys.argv) > 1 else None)
print(f"{study.advisor.name}: {study.advisor.note}")

mean, least, most = study.breaks("distance")
print(f"\n100 distance lines: {mean:.1f} breaks on average, {least} to {most}, both ends counted")

(circle,) = study.of("single theta")
print(f"\nthe circle of {circle.track.fixed:g} ft, from -180 to 180 degrees:")
for stretch in circle.stretches:
    start, stop = circle.track.position(stretch.start), circle.track.position(stretch.stop)
    samples = sum(stretch.start <= alpha <= stretch.stop for alpha, _ in circle.samples)
    print(f"  {start:9.3f} to {stop:9.3f} degrees: {stretch.advisory:17s} {samples} samples")

print(f"\n{len(study.missed)} intervals lie between samples; the narrowest:")
for m in sorted(study.missed, key=lambda m: m.line.track.length * m.stretch.width)[:5]:
    x, y = m.line.track.place((m.stretch.start + m.stretch.stop) / 2)
    feet = m.line.track.length * m.stretch.width
    print(f"  {m.stretch.advisory}, {feet:.1f} ft wide, around x = {x:.0f} ft (ahead), y = {y:.0f} ft (left)")

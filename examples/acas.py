"""What a collision-avoidance network advises around the ownship, exactly: lines, what samples miss, and a map.

    python examples/acas.py [NETWORK.nnet]

Without a file it studies the small network that ships with exactline, which is not ACAS Xu.
`exactline study acas --out DIR` draws the lines, `exactline study acas --plane --out DIR` the maps.
"""

import sys

import exactline as xl

study = xl.paper.acas.run(sys.argv[1] if len(sys.argv) > 1 else None)
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

(m,) = xl.paper.acas_plane.run(study.advisor, [study.scene]).maps
print(f"\nthe whole map to {m.reach:.0f} ft: {len(m.plane):,} polygons, {len(m.zones)} regions")
for name, (regions, _, area) in m.totals.items():
    print(f"  {name:17s} {regions} regions, {area / 5280**2:7.3f} square miles")
x, y = m.smallest.place
smallest = f"{m.smallest.advisory}, {m.smallest.area:.4g} square feet"
print(f"  the smallest: {smallest}, around x = {x:.0f} ft, y = {y:.0f} ft")

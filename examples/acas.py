"""What a collision-avoidance network advises around the ownship: exact lines, what samples miss, and a map.

    python examples/acas.py [NETWORK.nnet]

Without a file it studies a small bundled network, which is not ACAS Xu.
`exactline study acas --out DIR` draws the lines, `exactline study acas --plane --out DIR` the maps.
"""

import sys

import exactline as xl

study = xl.paper.acas.lines.run(sys.argv[1] if len(sys.argv) > 1 else None)
print(f"{study.advisor.name}: {study.advisor.note}")

mean, least, most = study.break_statistics("distance")
print(f"\n100 distance lines: {mean:.1f} breaks on average, {least} to {most}, both ends counted")

(circle,) = study.lines_of("single theta")
print(f"\nthe circle of {circle.track.fixed_input:g} ft, from -180 to 180 degrees:")
for interval in circle.intervals:
    start, stop = circle.track.varying_input(interval.start), circle.track.varying_input(interval.stop)
    samples = sum(interval.start <= alpha <= interval.stop for alpha, _ in circle.samples)
    print(f"  {start:9.3f} to {stop:9.3f} degrees: {interval.advisory:17s} {samples} samples")

print(f"\n{len(study.missed)} intervals lie between samples; the narrowest:")
for m in sorted(study.missed, key=lambda m: m.length_feet)[:5]:
    x, y = m.line.track.xy((m.interval.start + m.interval.stop) / 2)
    print(f"  {m.interval.advisory}, {m.length_feet:.1f} ft wide, around x = {x:.0f} ft (ahead), y = {y:.0f} ft (left)")

(m,) = xl.paper.acas.maps.run(study.advisor, [study.geometry]).maps
print(f"\nthe whole map to {m.reach:.0f} ft: {len(m.plane):,} polygons, {len(m.regions)} regions")
for name, total in m.totals.items():
    print(f"  {name:17s} {total.regions} regions, {total.area / 5280**2:7.3f} square miles")
x, y = m.smallest_region.xy
smallest = f"{m.smallest_region.advisory}, {m.smallest_region.area:.4g} square feet"
print(f"  the smallest: {smallest}, around x = {x:.0f} ft, y = {y:.0f} ft")

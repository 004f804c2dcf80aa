"""Every linear region and every boundary of a network's advice, on a plane of encounters.

    python examples/plane.py [FOLDER]

Distance and bearing of the intruder vary, its heading and both speeds stay. With a FOLDER, two pictures and a web page
are written to it. The network ships with exactline; it is not ACAS Xu.
"""

import sys
from pathlib import Path

import exactline as xl
from exactline.paper.acas import advisor
from exactline.plot.figure import save_picture
from exactline.zoo.encounter import ADVISORIES, encounter_network

head_on = [0.0, 0.0, -3.1, 150.0, 150.0]  # distance, bearing, the intruder's heading, both speeds
plane = xl.grid(encounter_network(), head_on, axes=(0, 1), box=((0.0, 8000.0), (-3.14, 3.14)))
print(plane)

advice = plane.decisions("min")  # the smallest cost is the advice
for label, area in advice.totals.items():
    parts = sum(region.label == label for region in advice)
    print(f"  {ADVISORIES[label]:18s} {area / plane.area:7.2%} of the plane, in {parts} parts")
smallest = advice[-1]
print(f"the smallest part, of {ADVISORIES[smallest.label]}, has an area of {smallest.area:.3g}, around")
print("  {:.0f} ft, {:.3f} radians".format(*smallest.rings[0].mean(0).tolist()))

if len(sys.argv) > 1:
    folder = Path(sys.argv[1])
    features = ["distance (ft)", "bearing (rad)", "heading (rad)", "own speed (ft/s)", "intruder's speed (ft/s)"]
    save_picture(plane.plot(features=features), folder / "regions.png")
    colours = [advisory.colour for advisory in advisor.ADVISORIES]  # as in the study of ACAS Xu
    advice_map = plane.plot(style="decisions", order="min", labels=ADVISORIES, colors=colours, features=features)
    save_picture(advice_map, folder / "advice.png")
    page = {"title": "advice", "labels": ADVISORIES, "colors": colours, "features": features}
    plane.to_html(folder / "plane.html", style="decisions", order="min", **page)

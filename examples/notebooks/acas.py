"""The source of examples/acas.ipynb, which `python scripts/notebooks.py` executes and stores."""

# pyright: reportUnusedExpression=false, reportOptionalMemberAccess=false

# %% [markdown]
# # What does a collision-avoidance network advise between the samples?
#
# Networks such as ACAS Xu tell an aircraft how to turn so that it does not meet another one. Five numbers go in: the
# intruder's distance (feet) and bearing, its heading (radians, left is positive), and both speeds (feet per second).
# Five costs come out, and **the smallest is the advice**.
#
# Who certifies such a network wants to know what it says everywhere, not only where somebody has looked. The network
# here is a small one of our own that ships with exactline; nobody should fly with it. At the end the same is asked
# of a published ACAS Xu network.

# %%
import os
from math import ceil, degrees, radians
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import exactline as xl
from exactline.verification.property import Property
from exactline.zoo.encounter import ADVISORIES, encounter_network

model = encounter_network()


def met(distance: float, bearing: float) -> list[float]:
    """An encounter: both fly at 150 ft/s, the intruder against us; the bearing is in degrees, left is positive."""
    return [distance, radians(bearing), -3.1, 150.0, 150.0]


# %% [markdown]
# ## One line
#
# An intruder 30 degrees to the left, anywhere between 0 and 12,000 ft away. On that line the network has finitely many
# affine pieces, and exactline finds all of them.

# %%
line = xl.restrict(model, met(0, 30), met(12_000, 30))
line

# %% [markdown]
# Within a piece the five costs are straight lines, so where the advice changes is known exactly:

# %%
decided = line.decisions(order="min")  # costs: the smallest decides
for interval in decided:
    print(f"{12_000 * interval.start:8.2f} to {12_000 * interval.stop:8.2f} ft: {ADVISORIES[interval.best]}")

# %%
decided.plot(labels=ADVISORIES)
plt.show()

# %% [markdown]
# The network that was asked, as exactline sees it:

# %%
line.network

# %% [markdown]
# ## What sampling misses
#
# All bearings in steps of 2 degrees, 181 lines swept together. Somebody who samples asks every 500 ft on each of them.

# %%
bearings = torch.linspace(-180, 180, 181).tolist()
lines = xl.restrict_many(model, [met(0, b) for b in bearings], [met(12_000, b) for b in bearings])
lines

# %%
missed: list[tuple[float, float, float, str]] = []
for bearing, one in zip(bearings, lines.decisions(order="min"), strict=True):
    for interval in one:
        start, stop = 12_000 * interval.start, 12_000 * interval.stop
        if 500 * ceil(start / 500) > stop:  # no sample in it
            missed.append((stop - start, bearing, (start + stop) / 2, ADVISORIES[interval.best]))

print(f"{len(missed)} intervals of advice lie between two samples; the narrowest:")
for width, bearing, middle, advice in sorted(missed)[:5]:
    print(f"  {advice}, {width:.0f} ft wide, at {bearing:.0f} degrees and {middle:.0f} ft")

# %% [markdown]
# ## The whole plane
#
# Lines still leave gaps between bearings. A plane leaves none: distance and bearing vary, the rest stays.

# %%
plane = xl.grid(model, met(0, 0), axes=(0, 1), box=((0.0, 8000.0), (-3.14, 3.14)))
plane

# %%
ax = plane.plot(style="decisions", order="min", labels=ADVISORIES)
ax.set(xlabel="distance (ft)", ylabel="bearing (radians)")
plt.show()

# %% [markdown]
# Every region of one advice, with its share of the map. The smallest are those that a coarse grid overlooks:

# %%
for region in plane.decisions("min"):
    distance, bearing = region.rings[0].mean(0).tolist()
    share = region.area / plane.area
    print(f"{ADVISORIES[region.label]:17s} {share:7.3%}, around {distance:4.0f} ft and {degrees(bearing):4.0f} degrees")

# %% [markdown]
# ## Looking for a violation
#
# A rule one might want: *an intruder behind us and slower than we are is no reason for a sharp turn.* Behind is a
# bearing of 140 to 180 degrees; it flies our way at up to 200 ft/s, we fly at 300 or more. All five inputs vary now. A
# counterexample is an encounter in this box where `strong right` costs no more than any other advice:

# %%
lower = [2_000.0, radians(140), -0.5, 300.0, 0.0]
upper = [20_000.0, radians(180), 0.5, 600.0, 200.0]
sharp = ADVISORIES.index("strong right")
others = [k for k in range(5) if k != sharp]
rows = [[float(k == sharp) - float(k == other) for k in range(5)] for other in others]
rule = Property.of(lower, upper, rows, [0.0] * 4)  # cost of a sharp turn - cost of another <= 0, for all others
rule

# %% [markdown]
# First, samples of the box:

# %%
low, high = torch.tensor(lower), torch.tensor(upper)
samples = low + (high - low) * torch.rand(300_000, 5, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    advice = model(samples).argmin(1)
print(f"{len(samples):,} samples, {int((advice == sharp).sum())} violations")

# %% [markdown]
# Then lines, each decided exactly, so that a violation of any width on them is found. What they find must be confirmed
# by the network itself:

# %%
found = xl.falsify(model, rule, shape=(5,), lines=500)
print(found)
distance, bearing, heading, own, other = found.x.tolist()
print(f"the intruder: {distance:.0f} ft away at {degrees(bearing):.0f} degrees, heading {degrees(heading):.0f} degrees")
print(f"we fly at {own:.0f} ft/s, it flies at {other:.0f} ft/s")

# %% [markdown]
# On the edge of the box. How far does the bad advice reach into it? The line from there to the middle says it:

# %%
inwards = xl.restrict(model, found.x, (low + high) / 2).decisions(order="min")
for interval in inwards:
    print(f"{interval.start:.4f} to {interval.stop:.4f} of the way: {ADVISORIES[interval.best]}")

# %% [markdown]
# ## A published network
#
# With the folder of published networks that `EXACTLINE_DATA` names, the same is asked of an ACAS Xu network, on all the
# lines of the paper's figure 2.

# %% tags=["published"]
data = os.environ.get("EXACTLINE_DATA")
if data is None:
    print("EXACTLINE_DATA is not set: no published network to ask.")
else:
    study = xl.paper.acas.lines.run(Path(data) / "acasxu" / "nnet" / "ACASXU_run2a_1_1_batch_2000.nnet")
    mean, least, most = study.break_statistics("distance")
    print(f"{study.advisor.name}: {len(study.lines)} lines; 100 of them vary the distance")
    print(f"those have {mean:.1f} breaks on average, {least} to {most}, both ends counted")
    print(f"{len(study.missed)} intervals of advice lie between samples, {sum(m.unseen for m in study.missed)} of them")
    print("with advice that no sample of their line shows")

"""The source of examples/regions_during_training.ipynb, which `python scripts/notebooks.py` executes and stores."""

# pyright: reportUnusedExpression=false

# %% [markdown]
# # How many pieces does a network have while it learns?
#
# A ReLU network cuts its input space into regions and is affine on each. How many there are, where they lie and how
# training moves them has been studied for years, mostly by sampling: walk along a line and look whether the pattern of
# units changes from one sample to the next. Whatever happens between two samples is not counted. Here every region
# is counted, so a change of the count is a change of the network.
#
# The task: tell two spirals apart. Input space is then a plane, and all of it can be looked at.

# %%
import math

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import exactline as xl

random = torch.Generator().manual_seed(0)


def spirals(each: int) -> tuple[Tensor, Tensor]:  # (2 each, 2) and (2 each,)
    turn = torch.rand(2, each, 1, generator=random, dtype=torch.float64).sqrt() * 3 * math.pi
    arm = torch.cat([turn.cos(), turn.sin()], 2) * turn / (3 * math.pi)
    points = arm * torch.tensor([1.0, -1.0])[:, None, None]
    points += 0.02 * torch.randn(points.shape, generator=random, dtype=torch.float64)
    return points.reshape(-1, 2), torch.arange(2).repeat_interleave(each)


points, labels = spirals(200)
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
).double()

# %% [markdown]
# ## Before
#
# All regions of a square that holds the spirals. There are no samples: the polygons fill it without a gap.


# %%
def regions() -> xl.PlaneRestriction:
    return xl.grid(model.eval(), [0.0, 0.0], axes=(0, 1), box=((-1.2, 1.2), (-1.2, 1.2)))


before = regions()
before

# %% [markdown]
# ## Lines that stay
#
# Forty lines, each from a point of one spiral to a point of the other. They are chosen once; only the network changes.

# %%
starts = points[torch.randperm(200, generator=random)[:40]]
ends = points[200 + torch.randperm(200, generator=random)[:40]]
xl.restrict_many(model, starts, ends)

# %% [markdown]
# ## Training
#
# Every 25 epochs all breaks on the forty lines are counted, for each unit of length and by the layer they originate
# from. `xl.density` gives both. `xl.callbacks.RegionDensity` looks closer: it lays a cross-polytope around ten of the
# points and counts the units that change their branch on its axes. It can be called in every step, also while the
# model is in training mode.

# %%
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
history: list[tuple[int, float, float, list[int]]] = []
monitor = xl.callbacks.RegionDensity(points[::40], every=25, radius=0.2, max_overhead=None)
for epoch in range(601):
    if epoch % 25 == 0:
        found = xl.density(model.eval(), starts, (ends - starts)[:, None])
        right = (model(points).argmax(1) == labels).double().mean().item()
        history.append((epoch, right, found.total, [int(counts.sum()) for counts in found.origins.values()]))
    model.train()
    monitor.step(model, epoch)
    loss = nn.functional.cross_entropy(model(points), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

print("epoch   right   breaks for each unit of length   by layer")
for epoch, right, density, layers in history[::4]:
    print(f"{epoch:5d}  {right:6.1%}   {density:30.2f}   {layers}")

# %%
epochs, rights, densities, layers = zip(*history, strict=True)
_, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.0), layout="constrained")
left.plot(epochs, densities, color="#0072B2")
left.set(xlabel="epoch", ylabel="breaks for each unit of length", ylim=(0, None))
for layer, colour in enumerate(("#0072B2", "#E69F00", "#D55E00")):
    right.plot(epochs, [counts[layer] for counts in layers], color=colour, label=f"layer {layer + 1}")
right.set(xlabel="epoch", ylabel="breaks on all lines", ylim=(0, None))
right.legend(frameon=False)
plt.show()

# %% [markdown]
# The count falls before it rises. While the network learns the coarse shape, its later layers straighten out; then the
# last layer, which had the fewest breaks, gets the most. The first layer's count changes least: its thirty-two units
# are thirty-two straight lines through the plane, wherever they lie.
#
# ## Around the data
#
# The count that is usually taken looks at the corners of the cross-polytope only. It agrees with the exact one as long
# as units change at most once on an axis; as regions fold around the data, it misses some.

# %%
steps = [record.step for record in monitor.history]
_, ax = plt.subplots(figsize=(4.6, 3.0), layout="constrained")
ax.plot(steps, [r.local_complexity for r in monitor.history], color="#0072B2", label="on the axes, exactly")
ax.plot(steps, [r.vertex_complexity for r in monitor.history], color="#D55E00", ls="--", label="at the corners")
ax.set(xlabel="epoch", ylabel="switching units around a point", ylim=(0, None))
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## After

# %%
after = regions()
after

# %% [markdown]
# Edges are coloured by the layer that bore them: those of the first layer are straight lines, those of later layers
# bend wherever they meet an earlier one. After training many of the last layer's run beside one another, along the
# spirals.

# %%
_, axes = plt.subplots(1, 2, figsize=(8.6, 3.4), layout="constrained")
for ax, plane, title in zip(axes, (before, after), ("before training", "after 600 epochs"), strict=True):
    plane.plot(ax)
    ax.set_title(f"{title}: {len(plane):,} regions")
axes[0].get_legend().remove()  # the other one is enough
plt.show()

# %% [markdown]
# What the network makes of them: each class is one connected region of the square, with an exact boundary.

# %%
print(f"regions of one class: {len(after.decisions())}; points read rightly: {rights[-1]:.0%}")
ax = after.plot(style="decisions", labels=["one spiral", "the other"])
ax.scatter(*points.T, c=labels, cmap="gray", s=6, linewidths=0.4, edgecolors="black")
plt.show()

# %% [markdown]
# ## What sampling would have counted
#
# The same lines, walked in steps, as regions are usually counted. A step over two breaks is at best counted as one.


# %%
def by_samples(line: xl.Restriction, steps: int) -> int:
    """Pieces seen by a walk: steps that hold a break, and one more."""
    return len((line.alphas[1:-1] * steps).floor().unique()) + 1


lines = xl.restrict_many(model, starts, ends)
for steps in (20, 100, 1000, 10_000):
    seen = sum(by_samples(line, steps) for line in lines)
    print(f"{steps:6,d} steps on each line: {seen:5,d} of {int(lines.pieces.sum()):,} pieces")
narrowest = min(float(line.alphas.diff().min()) for line in lines)
print(f"the narrowest piece has a share of {narrowest:.1e} of its line")

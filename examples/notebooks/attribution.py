"""The source of examples/attribution.ipynb, which `python scripts/notebooks.py` executes and stores."""

# pyright: reportUnusedExpression=false, reportOptionalMemberAccess=false

# %% [markdown]
# # Integrated gradients without the question "how many steps?"
#
# For users of captum's `IntegratedGradients`. Captum adds up gradients at samples of the line from a
# baseline to the input. A network of convolutions, ReLUs and max-poolings has only finitely many gradients on that
# line, one for each of its pieces. exactline finds all pieces, so the integral is a finite sum: there is nothing left
# to choose.

# %%
import warnings

warnings.filterwarnings("ignore", "IProgress not found")  # captum's progress bars would like another package

# %%
import captum.attr
import matplotlib.pyplot as plt
import torch
from torch import nn

import exactline as xl
from exactline.zoo import digits_images, digits_network

model = digits_network()  # a small convolutional network that ships with exactline
images, labels = (part[1::2] for part in digits_images())  # a handwritten digit of each class
print(tuple(images.shape), "all read rightly:", bool((model(images).argmax(1) == labels).all()))

# %% [markdown]
# ## The one-line edit
#
# This is captum, with its default of 50 steps. The delta is how far the attributions are from adding up to f(input) -
# f(baseline):

# %%
from captum.attr import IntegratedGradients

sampled, delta = IntegratedGradients(model).attribute(images, target=labels, return_convergence_delta=True)
print(f"the sum is off by up to {delta.abs().max():.3f}")

# %% [markdown]
# And this is exactline. Only the import is another:

# %%
from exactline.attr import IntegratedGradients

ig = IntegratedGradients(model)
exact, delta = ig.attribute(images, target=labels, return_convergence_delta=True)
print("the sum is off by less than 1e-12:", bool(delta.abs().max() < 1e-12))

# %% [markdown]
# ## What was wrong with the samples
#
# With the exact answer at hand, the error of any number of steps is a subtraction: here as a share of all attribution
# in an image, and beside it by how much the sum is off, which is all one could see before.


# %%
def share(found: torch.Tensor) -> torch.Tensor:  # (n, 1, 8, 8) -> (n,)
    return (found - exact).abs().flatten(1).sum(1) / exact.abs().flatten(1).sum(1)


print(" steps   error, mean   error, worst   sum off by, worst")
for steps in (10, 20, 50, 300, 1000):
    found, off = captum.attr.IntegratedGradients(model).attribute(
        images, target=labels, n_steps=steps, return_convergence_delta=True
    )
    error = share(found)
    print(f"{steps:6d}   {error.mean():11.3%}   {error.max():12.3%}   {off.abs().max():17.4f}")

# %% [markdown]
# Ten steps already put the bulk of the attribution in the right places, a thousand still leave an error. One digit,
# with ten steps and without any:

# %%
digit = 4
ten = captum.attr.IntegratedGradients(model).attribute(images, target=labels, n_steps=10)[digit]
_, axes = plt.subplots(1, 3, figsize=(8.4, 2.6), layout="constrained")
limit = exact[digit].abs().max().item()
xl.attr.plot(exact[digit], ax=axes[0], title="exact", limit=limit)
xl.attr.plot(ten, ax=axes[1], title="ten steps", limit=limit)
xl.attr.plot(ten - exact[digit], ax=axes[2], title="ten steps less exact")
plt.show()

# %% [markdown]
# ## Where the pieces are
#
# The line from the black image to that 4. Every tick below the curves is a break: a point where some unit of the
# network changes sides, and with it the gradient.

# %%
line = xl.restrict(model, torch.zeros_like(images[digit]), images[digit])
line

# %%
line.plot()
plt.show()

# %% [markdown]
# ## If you must sample
#
# On a network too large for the exact answer, take a few inputs and ask how many gradients which rule needs there.
# `until complete` is the usual heuristic, more steps until the sum is right to one percent. The last sentence says
# what that is worth: a right sum says little of its terms.

# %%
report = xl.attr.recommend(model, images, target=labels.tolist(), tolerance=0.05)
print(report)

# %%
report.plot()
plt.show()

# %% [markdown]
# ## Layers and neurons
#
# Conductance is the part of the output's change that flows through a unit. `LayerConductance` and `NeuronConductance`
# are exact too, with captum's arguments. The 64 hidden units of the last layer share out the whole change:

# %%
hidden = model[8]  # the last ReLU
flow = xl.attr.LayerConductance(model, hidden).attribute(images[digit : digit + 1], target=4)[0]
change = (model(images[digit : digit + 1]) - model(torch.zeros(1, 1, 8, 8)))[0, 4].item()
print(f"the score of the 4 rises by {change:.4f}, the units add up to {flow.sum():.4f}")

theirs = captum.attr.LayerConductance(model, hidden).attribute(images[digit : digit + 1], target=4)[0]
print(f"captum's 50 steps: {theirs.sum():.4f}; the unit that is furthest off, by {(theirs - flow).abs().max():.4f}")

# %% [markdown]
# The three units that speak for the 4 the most, and what each of them looks at:

# %%
best = flow.argsort(descending=True)[:3].tolist()
_, axes = plt.subplots(1, 3, figsize=(8.4, 2.6), layout="constrained")
for ax, unit in zip(axes, best, strict=True):
    seen = xl.attr.NeuronConductance(model, hidden).attribute(images[digit : digit + 1], unit, target=4)
    xl.attr.plot(seen[0], ax=ax, title=f"unit {unit}: {flow[unit]:.2f} of {change:.2f}")
plt.show()

# %% [markdown]
# ## Probabilities
#
# A softmax is not piecewise linear, but along each piece its inputs are straight lines, so its integral is known as
# well. A model that ends in one is explained by its probability:

# %%
sure = nn.Sequential(model, nn.Softmax(1)).eval()
found, off = xl.attr.IntegratedGradients(sure).attribute(images, target=labels, return_convergence_delta=True)
gained = (sure(images) - sure(torch.zeros(1, 1, 8, 8))).gather(1, labels[:, None])[:, 0]
print(f"probability gained by the images: {gained.min():.4f} to {gained.max():.4f}")
print("attributions add up to it within 1e-6:", bool(off.abs().max() < 1e-6))

# %% [markdown]
# ## How sure is that?
#
# Where a unit rests on its kink along a whole piece, its gradient is a convention, captum's as well as ours. The
# report on the last call counts such units and says how much attribution hangs on the convention: here none.

# %%
print(f"{ig.report.pieces:,} pieces")
print(f"{float(ig.report.subgradient_range.sum()):g} of the attribution depends on subgradient conventions")

# %% [markdown]
# Black pixels rest: their units are on a kink all along the line, but nothing flows through them. Next: `acas.ipynb`
# on decisions, and `regions_during_training.ipynb` on how many pieces a network has.

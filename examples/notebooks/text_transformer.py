"""The source of examples/text_transformer.ipynb, which `python scripts/notebooks.py` executes and stores."""

# pyright: reportUnusedExpression=false, reportOptionalMemberAccess=false

# %% [markdown]
# # Integrated gradients of a text transformer, with the error known
#
# A transformer has GELU, softmax and LayerNorm, so its gradient along a line is not piecewise constant and no finite
# sum is exact. Sampling is all there is, and 50 samples may be plenty or useless. This notebook trains a small
# transformer on made-up reviews and shows how to know which of the two it is.

# %%
import warnings

warnings.filterwarnings("ignore", "IProgress not found")  # captum's progress bars would like another package

# %%
import itertools

import captum.attr
import matplotlib.pyplot as plt
import torch
from torch import nn

import exactline as xl

# %% [markdown]
# ## A small transformer
#
# Reviews of six words, where "not" and "never" turn the meaning around. The transformer has two layers, 16 numbers for
# each word, and the LayerNorm epsilon of BERT, 1e-12.

# %%
subjects = ["film", "plot", "cast", "music"]
verbs = ["is", "was", "seems"]
turns = ["so", "quite", "not", "never"]
praise = ["good", "great", "lovely"]
blame = ["bad", "dull", "awful"]
reviews = [["the", *words] for words in itertools.product(subjects, verbs, turns, ["really", "just"], praise + blame)]
is_good = torch.tensor([(r[5] in praise) != (r[3] in ("not", "never")) for r in reviews]).long()
vocabulary = sorted({word for review in reviews for word in review})
tokens = torch.tensor([[vocabulary.index(word) for word in review] for review in reviews])


class TextTransformer(nn.Module):
    """Reads word vectors, (n, 6, 16); `embed` makes them from tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(vocabulary), 16), nn.Embedding(6, 16)
        block = nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 2)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.words(tokens) + self.places.weight

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(vectors).mean(1))


torch.manual_seed(0)
model = TextTransformer().double()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(150):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(model.embed(tokens)), is_good).backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    read = model(model.embed(tokens)).argmax(1)
print(f"{len(reviews)} reviews, all read rightly: {bool((read == is_good).all())}")

# %% [markdown]
# ## Which words decide?
#
# The usual recipe: integrated gradients of the word vectors, from a baseline of zeros. Captum's default is 50 steps.

# %%
review = ["the", "film", "was", "not", "really", "good"]
with torch.no_grad():
    vectors = model.embed(torch.tensor([[vocabulary.index(word) for word in review]]))

sampled = captum.attr.IntegratedGradients(model).attribute(vectors, target=1)

# %% [markdown]
# `tol=` asks exactline for the same attributions to a tolerance: the sum of all errors, relative to the sum of all
# attributions. The report says what was reached, and what it took.

# %%
ig = xl.attr.IntegratedGradients(model, tol=1e-6)
attributions = ig.attribute(vectors, target=1)
report = ig.report
print(f"{report.status}, error at most 1e-6: {bool(torch.as_tensor(report.error) <= 1e-6)}")
print(f"fewer than 2,000 gradients: {report.gradients < 2000}")

# %%
words = torch.arange(len(review))
figure, axes = plt.subplots(figsize=(7, 3))
axes.bar(words - 0.2, sampled.sum(2)[0], 0.4, label="captum, 50 steps")
axes.bar(words + 0.2, attributions.sum(2)[0], 0.4, label="to 1e-6")
axes.set_xticks(words, review)
axes.set_ylabel("attribution to 'good'")
axes.legend()
figure.tight_layout()

# %% [markdown]
# ## How wrong were the samples?
#
# With an answer whose error is known, the error of the others is a subtraction.


# %%
def error_of(steps: int) -> float:
    found = captum.attr.IntegratedGradients(model).attribute(vectors, target=1, n_steps=steps, internal_batch_size=100)
    return float((found - attributions).abs().sum() / attributions.abs().sum())


errors = {steps: error_of(steps) for steps in (50, 300, 1000)}
for steps, error in errors.items():
    print(f"captum, {steps} steps: off by more than 1 %: {error > 0.01}")

# %% [markdown]
# The reason is at the start of the line. LayerNorm divides by the size of its input, and the input is zero there:
# within a millionth of the line the network goes from one answer to another. The curve of the output shows the jump,
# and on a logarithmic axis what happens within it. exactline places its breakpoints there by itself.

# %%
curve = xl.approximate(model, torch.zeros_like(vectors[0]), vectors[0], tol=1e-8)
print(f"{curve.status}, error at most 1e-8: {curve.error <= 1e-8}")

alphas = torch.logspace(-9, 0, 400, dtype=torch.float64)
figure, axes = plt.subplots(figsize=(7, 3))
scores = torch.as_tensor(curve.at(alphas))
axes.semilogx(alphas, scores, label=["bad", "good"])
axes.plot(curve.breakpoints[1:], torch.full_like(curve.breakpoints[1:], float(scores.min())), "k|")
axes.set_xlabel("position on the line")
axes.set_ylabel("score")
axes.legend()
figure.tight_layout()

# %% [markdown]
# Most of the attribution is made in that millionth of the line, far from any text. The true integrated gradients from
# this baseline say little about the words, and 50 steps, which never look there, hide it. That is worth knowing before
# anybody reads the bars above.
#
# ## An easy line, and a proof
#
# From another review as the baseline, say the same one without "not", the line stays away from zero. A few hundred
# steps are then enough, and for a network as small as this one the error of the tolerance can even be proven.

# %%
other = ["the", "film", "was", "quite", "really", "good"]
with torch.no_grad():
    baseline = model.embed(torch.tensor([[vocabulary.index(word) for word in other]]))
proven = xl.attr.IntegratedGradients(model, tol=1e-6, certified=True)
exact = proven.attribute(vectors, baseline, target=1)
report = proven.report
print(f"{report.status}, error at most 1e-6: {bool(torch.as_tensor(report.error) <= 1e-6)}")
for steps in (50, 300):
    sampled = captum.attr.IntegratedGradients(model).attribute(vectors, baseline, target=1, n_steps=steps)
    error = float((sampled - exact).abs().sum() / exact.abs().sum())
    print(f"captum, {steps} steps: off by more than 1 %: {error > 0.01}")

# %% [markdown]
# "certified up to rounding" means that the error of the quadrature is proven to be below the tolerance, and that the
# rounding of float64, some 1e-15, is not part of the proof.
#
# Easy and hard lines look the same from outside. The tolerance tells them apart. The page *Smooth networks* of the
# documentation has the method; `attribution.ipynb` is about networks of ReLUs, where nothing is sampled at all.

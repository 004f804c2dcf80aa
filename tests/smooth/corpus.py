"""Networks and lines with known answers: every network is made from its seed, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from exactline.zoo import digits_images

from .corpus_networks import (
    INPUTS,
    CorpusNetwork,
    Encoder,
    GatedConvolution,
    InvertedResiduals,
    Lstm,
    Mlp,
    NormRelu,
    ReluTail,
)

COMPLEX_STEP = np.longdouble("1e-1000")
LAYERS = (1, 2, 4, 8)  # of encoders
SEEDS = 4  # networks of each family
LINES = 6  # of each network


@dataclass(frozen=True)
class CorpusLine:
    """One line of the corpus."""

    name: str
    network: CorpusNetwork
    start: Tensor  # (inputs,)
    end: Tensor  # (inputs,)

    def true_values(self, alphas):  # (n,) -> (n, outputs) long double
        """The outputs on the line in extended precision."""
        return self.network.true_values(self._points(alphas))

    def true_gradients(self, alphas, target):  # (n,) -> (n, inputs) long double
        """The gradient of one output, from imaginary steps along each coordinate."""
        points = self._points(alphas)
        steps = np.eye(INPUTS, dtype=np.longdouble) * COMPLEX_STEP
        stepped = (points[:, None] + 1j * steps).reshape(-1, INPUTS).astype(np.clongdouble)
        values = self.network.true_values(stepped)[:, target].imag / COMPLEX_STEP
        return values.reshape(len(points), INPUTS)

    def _points(self, alphas):
        return extended_points(self.start, self.end, alphas)


def extended_points(start, end, alphas):  # (*in) twice, (n,) -> (n, *in) long double
    """Positions on a line in extended precision."""
    a, b = (t.double().numpy().astype(np.longdouble) for t in (start, end))
    part = np.asarray(alphas, dtype=np.longdouble).reshape(-1, *[1] * a.ndim)
    return (1 - part) * a + part * b


FAMILIES: dict[str, Callable[[], CorpusNetwork]] = {
    **{f"{act} MLP, depth {d}": (lambda act=act, d=d: Mlp(act, d)) for d in (2, 4)
       for act in ("gelu", "silu", "tanh", "sigmoid", "softplus")},
    **{f"steep {act} MLP": (lambda act=act: Mlp(act, 3, scale=6.0)) for act in ("gelu", "tanh", "softplus")},
    "LayerNorm, ReLU": lambda: NormRelu(False),
    "LayerNorm, ReLU, softmax": lambda: NormRelu(True),
    "ReLU, softmax": ReluTail,
    **{f"encoder, {n} layers": (lambda n=n: Encoder(n, 1e-5, True)) for n in LAYERS},
    "encoder, 2 layers, ReLU": lambda: Encoder(2, 1e-5, True, "relu"),
    "gated convolution": GatedConvolution,
    "inverted residuals": InvertedResiduals,
    "LSTM": Lstm,
    **{f"zero residual stream, {n} layers, eps {eps}": (lambda n=n, eps=eps: Encoder(n, float(eps), False))
       for eps in ("1e-5", "1e-12") for n in LAYERS},
}  # fmt: skip


def make_network(family: str, seed: int) -> CorpusNetwork:
    """A network with random weights and biases; torch's own generator is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = FAMILIES[family]()
        for name, value in network.named_parameters():
            if name.endswith("bias"):  # attention and norms start with biases of zero, trained networks do not have
                nn.init.normal_(value, std=0.3)
    return network.eval()


def corpus_lines(
    seeds: int = SEEDS, lines: int = LINES, families: Sequence[str] = tuple(FAMILIES)
) -> Iterator[CorpusLine]:
    """All lines of some families: to images, from black, as integrated gradients go, from noise and from an image."""
    images = small_images()
    for family in families:
        number = list(FAMILIES).index(family)
        for seed in range(seeds):
            network = make_network(family, 1000 * number + seed)
            generator = torch.Generator().manual_seed(1000 * number + seed)
            for k in range(lines):
                start, end = images[torch.randperm(len(images), generator=generator)[:2]]
                if k % 3 == 0 or family.startswith("zero"):
                    start = torch.zeros_like(end)
                elif k % 3 == 1:
                    start = torch.randn(INPUTS, generator=generator, dtype=torch.float64)
                yield CorpusLine(f"{family}, seed {seed}, line {k}", network, start, end)


def small_images() -> Tensor:  # (images, inputs)
    """The bundled digits, averaged to 4 times 4 pixels."""
    images = digits_images()[0].double().reshape(-1, 1, 8, 8)
    return torch.nn.functional.avg_pool2d(images, 2).reshape(len(images), INPUTS)

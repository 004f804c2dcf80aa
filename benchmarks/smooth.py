"""Integrated gradients of smooth networks: captum at fixed numbers of steps, and exactline to a tolerance.

Prints the table of docs/smooth.md. Networks have random weights from fixed seeds; the line runs from a black image to a
digit. The truth is the answer to a tolerance of 1e-13.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

import exactline as xl
from exactline.zoo import digits_images

CAPTUM_STEPS = (50, 300, 1000)
TOLERANCES = (1e-6, 1e-10)
TARGET = 3


class DigitEncoder(nn.Module):
    """A transformer encoder over the eight rows of a digit, two at a time."""

    def __init__(self, layers: int, eps: float = 1e-5, from_zero: bool = False) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(
            32, 4, 64, batch_first=True, norm_first=True, activation="gelu", layer_norm_eps=eps, dropout=0.0
        )
        self.embed = nn.Linear(4, 32, bias=not from_zero)
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.reshape(x.shape[0], 16, 4))
        return self.head(self.encoder(tokens).mean(1))


def make(build: type[nn.Module] | None, *args: object) -> nn.Module:
    """A network with random weights; biases too, which torch sets to zero in attention."""
    torch.manual_seed(0)
    if build is None:
        hidden = [module for _ in range(3) for module in (nn.Linear(64, 64), nn.GELU())]
        model: nn.Module = nn.Sequential(*hidden, nn.Linear(64, 10))
    else:
        model = build(*args)
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(value, std=0.1)
    return model.eval().double()


NETWORKS = {
    "GELU MLP 64-64x3-10": lambda: make(None),
    "encoder, 2 layers": lambda: make(DigitEncoder, 2),
    "encoder, 8 layers": lambda: make(DigitEncoder, 8),
    "2 layers, residual stream from 0, eps 1e-5": lambda: make(DigitEncoder, 2, 1e-5, True),
    "2 layers, residual stream from 0, eps 1e-12": lambda: make(DigitEncoder, 2, 1e-12, True),
    "8 layers, residual stream from 0, eps 1e-12": lambda: make(DigitEncoder, 8, 1e-12, True),
}


def relative_error(found: Tensor, truth: Tensor) -> float:
    """The L1 error relative to the L1 norm."""
    return float((found - truth).abs().sum() / truth.abs().sum())


def to_tolerance(model: nn.Module, x: Tensor, tol: float) -> tuple[Tensor, xl.attr.AttributionReport]:
    """Attributions of one image, and the report."""
    method = xl.attr.IntegratedGradients(model, tol=tol)
    found = method.attribute(x, target=TARGET)
    if method.report is None:
        raise RuntimeError("no report")
    return found, method.report


def main() -> None:
    """Print one row for each network."""
    from captum.attr import IntegratedGradients

    warnings.simplefilter("ignore")
    image = digits_images()[0][:1].reshape(1, 64).double()
    heads = [f"captum {n}" for n in CAPTUM_STEPS]
    heads += [f"tol {tol:.0e}: gradients, estimate, true error" for tol in TOLERANCES]
    print(f"| line | {' | '.join(heads)} |")
    print("|---" * (1 + len(heads)) + "|")
    for name, build in NETWORKS.items():
        model = build()
        truth, _ = to_tolerance(model, image, 1e-13)
        cells: list[str] = []
        for steps in CAPTUM_STEPS:
            sampled = IntegratedGradients(model).attribute(image, target=TARGET, n_steps=steps, internal_batch_size=100)
            cells.append(f"{relative_error(sampled, truth):.0e}")
        for tol in TOLERANCES:
            found, report = to_tolerance(model, image, tol)
            estimate = 0.0 if report.error is None else float(report.error[0])
            cells.append(f"{report.gradients}, {estimate:.0e}, {relative_error(found, truth):.0e}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

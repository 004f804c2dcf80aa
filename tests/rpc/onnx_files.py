"""Networks of several kinds as .onnx files: convolutions, several inputs and outputs, a softmax, ties at the origin."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from exactline.network import as_network
from exactline.zoo import digits_network, loan_network, tent_network


class TwoInputs(nn.Module):
    """Two inputs, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 8), nn.Linear(2, 8)
        self.out, self.far = nn.Linear(8, 4), nn.Linear(8, 2)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        mixed = torch.relu(self.one(x) + self.two(y))
        return self.out(mixed), self.far(torch.relu(-mixed + 1))


def networks() -> dict[str, tuple[nn.Module, list[tuple[int, ...]]]]:
    """Return modules and the shapes of their inputs by name."""
    torch.manual_seed(5)
    plain = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 3))
    through = nn.Sequential(nn.Linear(4, 32, bias=False), nn.ReLU(), nn.Linear(32, 32, bias=False), nn.ReLU())
    soft = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1))
    return {
        "loan": (loan_network(), [(2,)]),
        "plain": (plain.eval(), [(4,)]),
        "through": (through.eval(), [(4,)]),  # every unit has its knot at the origin
        "soft": (soft.eval(), [(4,)]),
        "digits": (digits_network(), [(1, 8, 8)]),
        "pair": (TwoInputs().eval(), [(3,), (2,)]),
        "tent6": (tent_network(6), [(1,)]),
    }


def write_onnx_files(folder: Path) -> Path:
    """Write all networks to a folder."""
    for name, (module, shapes) in networks().items():
        as_network(module, [torch.zeros(shape) for shape in shapes]).save(folder / f"{name}.onnx")
    return folder

"""A small network, random lines, and a comparison of answers to the last bit."""

import torch

from exactline.results.restriction import Restriction


def assert_same(one: Restriction, two: Restriction) -> None:
    """Two restrictions of the same line are equal bit for bit."""
    for name in ("alphas", "origin_table", "ambiguous_per_piece"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name
    assert (one.stored_values is None) == (two.stored_values is None)
    for a, b in zip(one.stored_values or (), two.stored_values or (), strict=True):
        assert torch.equal(a, b)
    for side in ("starts", "ends"):
        for a, b in zip(getattr(one.lines, side), getattr(two.lines, side), strict=True):
            assert torch.equal(a, b)
    assert (one.names, one.units, one.stopped) == (two.names, two.units, two.stopped)


def small_network(*, seed: int = 0, outputs: int = 3) -> torch.nn.Sequential:
    """Five inputs, as ACAS Xu has them, and two hidden layers."""
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(5, 24), torch.nn.ReLU(), torch.nn.Linear(24, 24), torch.nn.ReLU())
    return torch.nn.Sequential(*layers, torch.nn.Linear(24, outputs)).double().eval()


def random_lines(count: int, *, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Starts and ends, (count, 5) each."""
    generator = torch.Generator().manual_seed(seed)
    starts, ends = torch.randn(2, count, 5, dtype=torch.float64, generator=generator)
    return starts, ends

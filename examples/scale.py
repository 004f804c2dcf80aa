"""A thousand lines in a store: asked once, kept for good, and read back one by one."""

import tempfile
from pathlib import Path

import torch

import exactline as xl

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(5, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3)).eval()
starts, ends = torch.randn(2, 1000, 5)
ends[7, 0] = float("nan")  # one line nobody can use


def widest(line: xl.Restriction) -> dict[str, float]:
    """A question of one's own: the widest piece, and where it begins."""
    widths = line.alphas.diff()
    return {"width": float(widths.max()), "from": float(line.alphas[widths.argmax()])}


with tempfile.TemporaryDirectory() as folder:
    store = xl.scale.run(model, zip(starts, ends, strict=True), out=Path(folder) / "lines")
    print(store)
    print(store[0], store.errors[7].problem, sep="\n")
    again = xl.scale.run(model, zip(starts, ends, strict=True), out=Path(folder) / "lines")  # does nothing
    print(again.complete)

    own = xl.scale.run(model, zip(starts, ends, strict=True), widest, out=Path(folder) / "widest")
    print(max((answer["width"], number) for number, answer in own.items()))

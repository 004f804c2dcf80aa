"""Write docs/operators.md from the registries: what is read from torch and from ONNX, and what is refused and why.

Run it after adding an operator: python scripts/operator_reference.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from exactline.formats.onnx import NEWEST, OLDEST, OPERATORS, REASONS
from exactline.network.aten import REFUSED, RULES
from exactline.ops import affine, maximum, order, pointwise
from exactline.ops.base import Affine, Breaking

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"

HEAD = """# Operators

<!-- made by scripts/operator_reference.py from the registries -->

A network is taken if every operator in it is **affine**, **breaking** (piecewise linear and continuous), or a smooth
**tail** at the very end. Anything else is refused before any work is done, by one error that names every offending node
with its module:

```python
import torch
import exactline as xl

model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.GELU(), torch.nn.LayerNorm(3)).eval()
try:
    xl.restrict(model, [0.0, 0.0], [1.0, 1.0])
except xl.UnsupportedError as error:
    print(error)
```

`exactline info FILE` says the same of a file. What you know to be piecewise linear and we do not can be
[registered](adding-an-operator.md).
"""

ATEN = """## From torch

A module is captured by `torch.export`, so what counts is not the name of a layer but the ATen operators it becomes:
`torch.nn.Flatten`, `x.view(...)` and `x.reshape(...)` are all `reshape`. These are all that are known, by the rule that
reads them.
"""

CONDITIONS = """### Conditions

A comparison or a sign is a jump, and no part of a piecewise-linear network by itself. Where it only chooses between two
branches that meet, as in `torch.where(x > 0, x, 0.1 * x)` or `x * (x > 0)`, the whole is a continuous function and is
read as such; where the branches do not meet it is refused.
"""

TAILS = """### Tails

Smooth, and only as the last operator. `line.values` are before the tail, `line.at(alpha, tail=True)` after it;
attributions follow it.
"""

ONNX = f"""## From ONNX

Operator sets {OLDEST} to {NEWEST}. Files are read operator by operator into the same graph; nothing in them is run.
Some operators are read only where they act on constants, as exporters leave them in computations of shapes.
"""

NOT = """## Refused

These are known, and known not to fit. An operator in none of the tables is refused too, as unknown.
"""

CLASSES = """## The classes behind them

All of the above is put into few kinds of nodes; engines know these by what they can do and none by name.
"""

CONDITIONAL = ("compare", "sign", "logical_not", "logical", "where")
CALLED = {  # rules whose names say little
    "average": "average pools, fold, linear interpolation",
    "move": "moving, repeating, padding, picking elements",
    "identity": "identity (dropout in eval mode)",
    "cast": "casts between floating-point types, read as exact",
    "filled": "constants of a shape",
    "reduce": "reductions",
    "order": "sorted values",
    "cumulative": "running extremes",
    "absolute": "absolute value",
    "maximum": "maximum and minimum of branches",
    "elementwise": "by element",
}
FILES = {  # rules of ONNX by the module they are in
    "affine": "products and BatchNormalization",
    "arithmetic": "by element, and reductions",
    "pools": "pools, interpolation, TopK",
    "shapes": "shapes",
}
CONSTANT = ("folded", "modulo", "power")  # rules that want constants; a power may have the exponent 1
SMOOTH = ("smooth", "softmax")


def page() -> str:
    """The whole page."""
    rules = [(name, rule) for name, rule in RULES.items() if not name.startswith("exactline::")]
    named = [(n, r) for n, r in rules if r.__name__ in CONDITIONAL]
    plain = [(n, r) for n, r in rules if r.__name__ not in CONDITIONAL]
    head = ("what", "operators")
    return "\n".join(
        [
            HEAD,
            ATEN,
            "### Affine\n",
            _table(head, _rows(plain, "affine", "shape")),
            "### Breaking\n",
            _table(head, _rows(plain, "pointwise", "maximum")),
            CONDITIONS,
            _table(head, _rows(named, "pointwise")),
            TAILS,
            _table(head, _rows(plain, "tails")),
            ONNX,
            _table(head, _files()),
            NOT,
            _table(("why", "torch", "ONNX"), _refused()),
            CLASSES,
            _table(("class", "kind", "what it is"), _classes()).rstrip("\n") + "\n",
        ]
    )


def _rows(rules: Iterable[tuple[str, Callable[..., Any]]], *modules: str) -> list[tuple[str, str]]:
    """A row for each rule of some modules, with the names it reads."""
    names: dict[Any, list[str]] = {}
    for name, rule in rules:
        if rule.__module__.rsplit(".", 1)[1] in modules:
            names.setdefault(rule, []).append(name)
    rows: list[tuple[str, str]] = []
    for rule, found in names.items():
        called = str(rule.__name__)
        rows.append((CALLED.get(called, called.replace("_", " ")), ", ".join(f"`{name}`" for name in found)))
    return rows


def _files() -> list[tuple[str, str]]:
    """ONNX operators by what they are."""
    groups: dict[str, list[str]] = {kind: [] for kind in (*FILES.values(), "tails", "only of constants")}
    for name, read in OPERATORS.items():
        rule = getattr(read, "__name__", "")
        kind = "tails" if rule in SMOOTH else FILES[read.__module__.rsplit(".", 1)[1]]
        kind = "only of constants" if rule in CONSTANT or name == "ReduceProd" else kind
        groups[kind].append(f"`{name}`")
    return [(kind, ", ".join(sorted(names))) for kind, names in groups.items()]


def _refused() -> list[tuple[str, str, str]]:
    theirs = _by_reason({name: reason for name, reason in REASONS.items() if name not in OPERATORS})
    ours = _by_reason(REFUSED)
    return [(why, ours.get(why, ""), theirs.get(why, "")) for why in dict.fromkeys([*ours, *theirs])]


def _by_reason(reasons: Mapping[str, str]) -> dict[str, str]:
    grouped: dict[str, list[str]] = {}
    for name, why in reasons.items():
        grouped.setdefault(why, []).append(f"`{name}`")
    return {why: ", ".join(names) for why, names in grouped.items()}


def _classes() -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for module in (affine, pointwise, maximum, order):
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__ and issubclass(kind, (Affine, Breaking)):
                what = "affine" if issubclass(kind, Affine) else "breaking"
                rows.append((f"`ops.{module.__name__.rsplit('.', 1)[1]}.{kind.__name__}`", what, _first(kind)))
    return rows


def _first(kind: type) -> str:
    return (kind.__doc__ or "").splitlines()[0].replace("``", "`")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")

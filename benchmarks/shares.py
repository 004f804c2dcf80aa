"""Where the dense engine's time goes: layers, merging points, finding and placing crossings, error estimates.

    python benchmarks/shares.py [NAME ...]

Processor time of one thread by Python's profiler. NAME is the beginning of a network's name. A line with more breaks
than MOST is swept to that break only.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from time import process_time

import torch
from shapes import CASES, Case
from timing import table

SHOWN = ("5-50x6-5, 100 lines", "784-1024x4-10", "convSmall", "convMed", "convBig")
MOST = 3000  # breaks of one line
PARTS = {
    "layers": ("move_on", "relu_"),
    "merging points": ("tensor", "facts", "_newborn"),
    "finding and placing": ("largest_of", "settle", "crossings", "place"),
    "compiled loops": ("quickly",),
    "error estimates": ("bound", "fuzz", "usual_errors"),
}


def shares(case: Case) -> list[str]:
    """One row of the table."""
    model = case.model()
    most = MOST if case.lines == 1 else None
    case.restrict(model, engine="dense", max_breaks=2 if most else None)  # captures the network, loads what is compiled
    profile = cProfile.Profile(process_time)
    lines = profile.runcall(case.restrict, model, engine="dense", max_breaks=most)
    seconds = dict.fromkeys(PARTS, 0.0)
    found = pstats.Stats(profile)
    for (path, _, name), (_, _, _, whole, _) in found.stats.items():  # pyright: ignore[reportAttributeAccessIssue]
        for part, names in PARTS.items():
            if any(name.endswith(f".{n}>") or (n == name and "exactline" in path) for n in names):
                seconds[part] += whole
    total = found.total_tt  # pyright: ignore[reportAttributeAccessIssue]
    seconds["finding and placing"] -= seconds["error estimates"]  # which are asked for there
    rest = total - sum(seconds.values())
    cells = [f"{s / total:.0%}" for s in (*seconds.values(), rest)]
    return [case.name, f"{int(lines.pieces.sum()):,}", *cells]


def main() -> None:
    """Measure the networks asked for and print one table."""
    torch.set_num_threads(1)
    names = sys.argv[1:] or SHOWN
    cases = [case for case in CASES.values() if not case.gpu and any(case.name.startswith(name) for name in names)]
    print(table(("network", "pieces", *PARTS, "the rest"), [shares(case) for case in cases]))


if __name__ == "__main__":
    main()

"""Every class of `exactline.attr` on published architectures, against the restriction of the same line.

    python benchmarks/layers.py [NAME ...] [--max-breaks 200] [--layers 2]

The line connects two images of noise and ends after the given number of breaks, halfway to the next one: at a break, a
unit would be on its knot. Processor time of one thread, of calls after the capture. A cell is the time of a call over
the larger of a restriction and one plain float64 forward at as many points; "forwards" is the restriction over that
forward. Layers are ReLUs: the first one, and others spread evenly, separated by slashes in a cell. "softmax" has a
softmax behind the model.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from architectures import ARCHITECTURES, build, input_size
from shares import line_of, seconds_per_point
from timing import Clock, table
from torch import Tensor, nn

import exactline as xl
from exactline import attr

LIMIT = 3.0  # restrictions or forwards that each method may take
WARM_UP = 1e-3  # of the line, for the capture
UNIT = (0, 0, 0)

Call = Callable[[Tensor, Tensor], Any]  # with the ends of a line


def methods(model: nn.Module, layers: int) -> Iterator[tuple[str, list[Call]]]:
    """Each method by its name, with a call for each layer."""
    relus = [part for part in model.modules() if isinstance(part, (nn.ReLU, nn.ReLU6))]
    chosen = relus[:: max(1, len(relus) // layers)][:layers]
    probable = nn.Sequential(model, nn.Softmax(-1)).eval()
    for suffix, network in (("", model), (", softmax", probable)):
        integrated, expected = attr.IntegratedGradients(network), attr.ExpectedGradients(network)
        yield f"IntegratedGradients{suffix}", [lambda a, b, m=integrated: m.attribute(b, a, target=0)]
        yield f"ExpectedGradients{suffix}", [lambda a, b, m=expected: m.attribute(b, a, target=0)]
        for kind in (attr.LayerConductance, attr.InternalInfluence, attr.LayerIntegratedGradients):
            yield (
                f"{kind.__name__}{suffix}",
                [lambda a, b, m=m: m.attribute(b, a, target=0) for m in (kind(network, layer) for layer in chosen)],
            )
        through = (attr.NeuronConductance(network, layer) for layer in chosen)
        yield f"NeuronConductance{suffix}", [lambda a, b, m=m: m.attribute(b, UNIT, a, target=0) for m in through]
    units = (attr.NeuronIntegratedGradients(model, layer) for layer in chosen)
    yield "NeuronIntegratedGradients", [lambda a, b, m=m: m.attribute(b, UNIT, a) for m in units]


def measure(name: str, max_breaks: int, layers: int) -> tuple[list[str], dict[str, list[float]]]:
    """Name, pieces, seconds of a restriction and its forwards; by method, the ratio at every layer."""
    clock = Clock(processor=True)

    def timed(call: Callable[[], Any]) -> float:
        began = clock()
        call()
        return clock() - began

    model = build(name).double()
    start, end = line_of("long", input_size(name))
    last_breaks = xl.restrict(model, start, end, max_breaks=max_breaks + 1).alphas[-2:]
    end = torch.lerp(start, end, float(last_breaks.mean()))
    line = xl.restrict(model, start, end)
    restrict = timed(lambda: xl.restrict(model, start, end))
    forward = seconds_per_point(model, start) * len(line.alphas)
    ratios = dict[str, list[float]]()
    near = torch.lerp(start, end, WARM_UP)
    for title, calls in methods(model, layers):
        times = list[float]()
        while calls:
            call = calls.pop(0)
            call(start[None], near[None])
            times.append(timed(partial(call, start[None], end[None])))
            del call
            gc.collect()  # what was captured for one layer, before the next one
        ratios[title] = [seconds / max(restrict, forward) for seconds in times]
        print(name, title, *(f"{ratio:.2f}" for ratio in ratios[title]), sep="\t", flush=True)
    return [name, f"{len(line):,}", f"{restrict:.2f}", f"{restrict / forward:.2f}"], ratios


def main() -> None:
    """Measure the architectures asked for: each method as it comes, and one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--max-breaks", type=int, default=200)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [measure(name, options.max_breaks, options.layers) for name in options.names]
    titles = list(found[0][1])
    rows = [[*head, *(" / ".join(f"{r:.2f}" for r in ratios[t]) for t in titles)] for head, ratios in found]
    print(table(("network", "pieces", "restrict, s", "forwards", *titles), rows))
    above = [f"{h[0]}, {t}" for h, ratios in found for t, cells in ratios.items() if max(cells) > LIMIT]
    print(f"above {LIMIT:.0f}:", "; ".join(above) or "none")


if __name__ == "__main__":
    main()

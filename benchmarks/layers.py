"""Exact attributions of inputs, layers and units on published architectures, against the restriction of the same line.

    python benchmarks/layers.py [NAME ...] [--max-breaks 100] [--layers N]

The line connects two images of noise and ends after the given number of breaks. Processor time of one thread, of a
second call: the first one captures the model. "ratio" is to the larger of a restriction and one plain float64 forward
at as many points. Layers are ReLUs: the first one, and others spread evenly.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
from architectures import ARCHITECTURES, build, input_size
from shares import line_of, seconds_per_point
from timing import Clock, table
from torch import Tensor, nn

import exactline as xl
from exactline import attr

COLUMNS = ("network, method, layer", "seconds", "restrictions", "forwards", "ratio")


def methods(model: nn.Module, start: Tensor, end: Tensor, layers: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each method with its name; a softmax is put behind the model for those of probabilities."""
    ends: dict[str, Any] = {"inputs": end[None], "baselines": start[None]}
    probable = nn.Sequential(model, nn.Softmax(-1)).eval()
    for suffix, network in (("", model), (", softmax", probable)):
        explain = attr.IntegratedGradients(network)
        yield f"IntegratedGradients{suffix}", lambda explain=explain: explain.attribute(**ends, target=0)
    relus = [(name, part) for name, part in model.named_modules() if isinstance(part, (nn.ReLU, nn.ReLU6))]
    for name, layer in relus[:: max(1, len(relus) // layers)][:layers]:
        for suffix, network in (("", model), (", softmax", probable)):
            flow = attr.LayerConductance(network, layer)
            yield f"LayerConductance{suffix}, {name}", lambda flow=flow: flow.attribute(**ends, target=0)
        for kind in (attr.InternalInfluence, attr.LayerIntegratedGradients):
            inner = kind(model, layer)
            yield f"{kind.__name__}, {name}", lambda inner=inner: inner.attribute(**ends, target=0)
        unit = attr.NeuronConductance(model, layer)
        yield (
            f"NeuronConductance, {name}",
            lambda unit=unit: unit.attribute(**ends, neuron_selector=(0, 0, 0), target=0),
        )


def measure(name: str, max_breaks: int, layers: int) -> list[list[str]]:
    """The rows of one architecture."""
    clock = Clock(processor=True)

    def timed(call: Callable[[], Any]) -> float:
        began = clock()
        call()
        return clock() - began

    model = build(name).double()
    start, end = line_of("long", input_size(name))
    end = torch.lerp(start, end, float(xl.restrict(model, start, end, max_breaks=max_breaks).alphas[-1]))
    line = xl.restrict(model, start, end)
    restrict = timed(lambda: xl.restrict(model, start, end))
    forward = seconds_per_point(model, start) * len(line.alphas)
    rows = [[f"{name}, {len(line):,} pieces: restrict", f"{restrict:.2f}", "1.00", f"{restrict / forward:.2f}", ""]]
    for title, call in methods(model, start, end, layers):
        call()
        took = timed(call)
        ratios = took / restrict, took / forward, took / max(restrict, forward)
        rows.append([f"{name}, {title}", f"{took:.2f}", *(f"{ratio:.2f}" for ratio in ratios)])
    return rows


def main() -> None:
    """Measure the architectures asked for and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--max-breaks", type=int, default=100)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(table(COLUMNS, [row for name in options.names for row in measure(name, options.max_breaks, options.layers)]))


if __name__ == "__main__":
    main()

"""Whether `engine="auto"` selects the faster engine: seconds of both engines and of the choice between them.

``python benchmarks/engines.py [networks] --data FOLDER`` prints one row for each network and line, of few to many
pieces: random convolutional networks, those of `architectures`, and the ONNX files below a folder. Seconds are of one
processor and of one thread, the best of several calls after a first one. The slower engine is stopped at a multiple of
the faster one's time.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import torch
from architectures import ARCHITECTURES, build, input_size
from torch import Tensor, nn

import exactline as xl
from exactline.engines.dense.sweep import SweepLimits
from exactline.engines.patches.segmentation import forecast_breaks
from exactline.errors import ExactlineError
from exactline.lines import Lines
from exactline.network import as_network

RANDOM_NETWORKS = 30
WANTED = (5, 100, 1500)  # breaks of the lines, about
MAX_BREAKS = 1000
SLOW = 5.0  # the slower engine is stopped after so many times the seconds of the faster one
LONG_RUN = 1.0  # seconds of a call after which it is not repeated
RUNS = 3


def _random_network(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """A convolutional network of random shape, and the shape of its input."""
    draw = random.Random(seed)
    channels, size = draw.choice([1, 3]), draw.choice([8, 14, 20, 28, 32, 48])
    shape, layers = (channels, size, size), list[nn.Module]()
    activation = draw.choice([nn.ReLU, nn.ReLU, nn.ReLU, lambda: nn.LeakyReLU(0.1), nn.Hardtanh])
    pool = draw.choice([None, nn.MaxPool2d, nn.AvgPool2d])
    for _ in range(draw.randint(1, 6)):
        after, kernel = draw.choice([4, 8, 16, 32, 64]), draw.choice([1, 3, 3, 3, 5])
        stride = draw.choice([1, 1, 2]) if size >= 8 else 1
        layers += [nn.Conv2d(channels, after, kernel, stride, kernel // 2)]
        layers += [_normalization(after)] * draw.choice([0, 1])
        layers += [activation()]
        channels, size = after, (size - 1) // stride + 1
        if pool is not None and size >= 8 and draw.random() < 0.5:
            layers += [pool(2)]
            size //= 2
    end = draw.choice(["linear", "global", "hidden"])
    if end == "global":
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    else:
        hidden = draw.choice([32, 128, 512]) if end == "hidden" else 0
        layers += [nn.Flatten()]
        layers += [nn.Linear(channels * size * size, hidden), nn.ReLU(), nn.Linear(hidden, 10)] if hidden else []
        layers += [] if hidden else [nn.Linear(channels * size * size, 10)]
    return nn.Sequential(*layers), shape


def _normalization(channels: int) -> nn.Module:
    layer = nn.BatchNorm2d(channels)
    layer.running_mean, layer.running_var = 0.1 * torch.randn(channels), torch.rand(channels) + 0.5
    return layer


def _tiny_yolo() -> tuple[nn.Module, tuple[int, ...]]:
    """The layers of tiny YOLOv2 at a small size."""
    channels, layers = 3, list[nn.Module]()
    for i, after in enumerate([16, 32, 64, 128, 256, 512, 1024, 1024]):
        layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), _normalization(after), nn.LeakyReLU(0.1)]
        layers += [nn.MaxPool2d(2)] if i < 5 else []
        channels = after
    return nn.Sequential(*layers, nn.Conv2d(channels, 125, 1)), (3, 96, 96)


def networks(
    data: Path | None, random_networks: int
) -> Iterator[tuple[str, Callable[[], tuple[Any, tuple[int, ...]]]]]:
    """Names of networks, and functions that make them and the shapes of their inputs."""
    for seed in range(random_networks):
        yield f"random {seed}", lambda seed=seed: _random_network(seed)
    yield "tiny YOLO", _tiny_yolo
    for path in sorted(data.rglob("*.onnx")) if data is not None else ():
        yield path.stem, lambda path=path: _load(path)
    for name in ARCHITECTURES:
        yield name, lambda name=name: (build(name), (3, input_size(name), input_size(name)))


def _load(path: Path) -> tuple[Any, tuple[int, ...]]:
    network: Any = xl.load(path)
    return network, tuple(network.nodes[network.inputs[0]].shape)


def lines_of(model: Any, shape: tuple[int, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    """Lines from one point of noise towards another, on which about `WANTED` breaks are forecast."""
    torch.manual_seed(1)
    start, end = torch.randn(2, *shape, dtype=torch.float64)
    network = as_network(model, [start])

    def forecast(length: float) -> float:
        lines = Lines((start[None],), ((start + length * (end - start))[None],))
        with SweepLimits(1 << 20).enforced():
            return float(forecast_breaks(network, lines, 0, torch.linspace(0, 1, 3).numpy()).sum())

    shorter = 1e-7
    for wanted in WANTED:
        low, high = shorter, 1.0
        for _ in range(12):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if forecast(middle) < wanted else (low, middle)
        shorter = high
        yield start, start + high * (end - start)


def _measure(call: Callable[[], xl.Restriction], runs: int = RUNS) -> tuple[float, xl.Restriction]:
    """Fewest processor seconds of some calls, and the last answer."""
    fewest = float("inf")
    for run in range(runs):
        began = process_time()
        answer = call()
        fewest = min(fewest, process_time() - began)
        if fewest > LONG_RUN or run == runs - 1:
            return fewest, answer
    raise ValueError("there must be a run")


def compare(model: Any, start: Tensor, end: Tensor) -> dict[str, Any]:
    """Seconds of both engines and of the choice between them."""

    def restrict(engine: str, seconds: float | None = None) -> xl.Restriction:
        limits: dict[str, Any] = {} if seconds is None else {"seconds": seconds}
        return xl.restrict(model, start, end, engine=engine, max_breaks=MAX_BREAKS, **limits)

    auto, answer = _measure(lambda: restrict("auto"), RUNS + 1)
    engine = answer.engine.split()[0]
    other = "patches" if engine == "dense" else "dense"
    selected, _ = _measure(lambda: restrict(engine))
    budget = SLOW * selected + 0.2
    rejected, stopped = _measure(lambda: restrict(other, 4 * budget), 1)
    if rejected < budget and stopped.stopped != "seconds":
        rejected = min(rejected, _measure(lambda: restrict(other))[0])
    seconds = {engine: selected, other: rejected}
    return {
        "pieces": len(answer),
        "dense": seconds["dense"],
        "patches": seconds["patches"],
        "auto": auto,
        "engine": answer.engine,
        "ratio": auto / min(auto, selected, rejected),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help="parts of names; all by default")
    parser.add_argument("--data", type=Path, help="a folder with ONNX files")
    parser.add_argument("--random", type=int, default=RANDOM_NETWORKS, help="number of random networks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | pieces | dense, s | patches, s | auto, s | auto / best | choice |\n" + "|---" * 7 + "|")
    ratios = list[float]()
    for name, make in networks(options.data, options.random):
        if options.networks and not any(part in name for part in options.networks):
            continue
        torch.manual_seed(0)
        try:
            model, shape = make()
            model = model.double().eval() if isinstance(model, nn.Module) else model
            for start, end in lines_of(model, shape):
                row = compare(model, start, end)
                ratios.append(row["ratio"])
                numbers = " | ".join(f"{row[k]:.4f}" for k in ("dense", "patches", "auto"))
                print(f"| {name} | {row['pieces']} | {numbers} | {row['ratio']:.2f} | {row['engine']} |", flush=True)
        except ExactlineError as problem:
            print(
                f"| {name} | | | | | | {problem.problem[:80] if hasattr(problem, 'problem') else problem} |", flush=True
            )
    late = sum(ratio > 1.3 for ratio in ratios)
    print(f"{late} of {len(ratios)} above 1.3, the largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()

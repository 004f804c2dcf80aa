"""Hashes of several hundred answers from fixed seeds, to see whether a change of the code changed a number.

    python scripts/answer_hashes.py --out before.json          # on one commit
    python scripts/answer_hashes.py --out after.json --compare before.json

Numbers are hashed as they are decoded, bit for bit, so both runs need one processor, one torch and one number of
threads. Published networks are read from the folder that EXACTLINE_DATA names, where it is set.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import exactline as xl
from exactline import attr, zoo

Answer = Callable[[], Any]
PATCHES = "patches" if hasattr(xl.Restriction, "origins") else "local"  # the engine's name on commits before the rename


def digest(value: Any) -> str:
    """A hash of every number in nested tuples, lists, dicts, arrays and tensors."""
    seen = hashlib.sha256()

    def feed(value: Any) -> None:
        if isinstance(value, Tensor):
            feed(value.detach().cpu().contiguous().numpy())
        elif isinstance(value, np.ndarray):
            seen.update(f"{value.dtype}{value.shape}".encode())
            seen.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, dict):
            feed(sorted(value.items()))
        elif isinstance(value, (tuple, list)):
            seen.update(f"[{len(value)}".encode())
            for item in value:
                feed(item)
        elif isinstance(value, float):
            seen.update(value.hex().encode())
        else:
            seen.update(repr(value).encode())

    feed(value)
    return seen.hexdigest()[:24]


def field(thing: Any, *names: str) -> Any:
    """The first attribute there is, for names that differ between commits."""
    for name in names:
        if hasattr(thing, name):
            return getattr(thing, name)
    raise AttributeError(f"{type(thing).__name__} has none of {names}")


def origins(line: Any) -> list[tuple[Any, ...] | None]:
    """Node, unit and count of every break or edge."""
    return [None if o is None else (o.node, o.unit, o.count) for o in field(line, "origins", "born")]


def of_line(line: Any) -> tuple[Any, ...]:
    """The numbers of a restriction."""
    counts = field(line, "ambiguous_per_piece", "doubts")
    values = None if field(line, "stored_values", "kept") is None else line.values
    return line.alphas, values, origins(line), counts, line.stopped, len(line)


def of_plane(plane: Any) -> tuple[Any, ...]:
    """The numbers of a plane."""
    arrays = (plane.weights, plane.edges, plane.sides, plane.offsets, plane.rings, plane.areas)
    return *arrays, origins(plane), plane.values, field(plane, "ambiguous", "unresolved")


class Block(nn.Module):
    """A residual block with a pool beside it: sums, concatenation, overlapping windows."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm, self.pool = nn.BatchNorm2d(channels), nn.MaxPool2d(3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Twice as many channels."""
        inner = torch.relu(x + self.two(torch.relu(self.norm(self.one(x)))))
        return torch.cat([inner, self.pool(x)], 1)


def mlp(*widths: int, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """Linear layers and an activation between them."""
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Small networks of many kinds with fixed weights, and the shape of their inputs."""
    torch.manual_seed(7)
    conv = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1), nn.LeakyReLU(0.1)
    )
    wide = nn.Sequential(nn.Conv2d(3, 8, 4, 2), nn.ReLU(), nn.Conv2d(8, 12, 4, 2), nn.ReLU(), nn.Flatten())
    made: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "mlp": (mlp(4, 24, 24, 3), (4,)),
        "deep": (mlp(5, *[50] * 6, 5), (5,)),
        "hardtanh": (mlp(4, 16, 16, 2, act=nn.Hardtanh), (4,)),
        "leaky": (mlp(4, 16, 16, 2, act=lambda: nn.LeakyReLU(0.25)), (4,)),
        "relu6": (mlp(6, 20, 20, 3, act=nn.ReLU6), (6,)),
        "softmax": (nn.Sequential(mlp(4, 16, 16, 3), nn.Softmax(-1)), (4,)),
        "bias-free": (nn.Sequential(nn.Linear(4, 32, bias=False), nn.ReLU(), nn.Linear(32, 8, bias=False)), (4,)),
        "conv": (nn.Sequential(conv, nn.Flatten(), nn.Linear(6 * 25, 4)), (1, 12, 12)),
        "wide": (nn.Sequential(wide, nn.Linear(12 * 36, 10)), (3, 32, 32)),
        "residual": (
            nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), Block(3), nn.Flatten(), nn.Linear(6 * 64, 3)),
            (2, 8, 8),
        ),
        "averages": (
            nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48, 3)),
            (1, 10, 10),
        ),
        "one dim": (
            nn.Sequential(nn.Conv1d(2, 5, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(35, 2)),
            (2, 16),
        ),
        "upsample": (
            nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(3, 2, 3), nn.ReLU()),
            (1, 7, 7),
        ),
    }
    integers = mlp(3, 8, 8, 2)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(3)
        for parameter in integers.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
    made["integers"] = (integers, (3,))
    made["tent"] = (zoo.tent_network(7), (1,))
    made["digits"] = (zoo.digits_network(), (1, 8, 8))
    made["encounter"] = (
        getattr(zoo, "encounter_network" if hasattr(zoo, "encounter_network") else "encounter")(),
        (5,),
    )
    return {name: (module.eval(), shape) for name, (module, shape) in made.items()}


def ends(shape: tuple[int, ...], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ends of some lines; every third begins at zero, where ties are."""
    generator = torch.Generator().manual_seed(seed)
    starts, stops = torch.randn(2, count, *shape, generator=generator, dtype=torch.float64) * 2
    starts[::3] = 0
    return starts, stops


def lines() -> Iterator[tuple[str, Answer]]:
    """One line at a time, by both engines, in several budgets of memory."""
    for name, (module, shape) in networks().items():
        starts, stops = ends(shape, 4, 11)
        engines = ("dense", PATCHES) if len(shape) > 1 else ("dense",)
        for i in range(4):
            for engine in engines:
                for memory in (None, 1 << 16) if i < 2 else (None,):
                    options: dict[str, Any] = {"engine": engine, "memory": memory}

                    def ask(m: Any = module, a: Tensor = starts[i], b: Tensor = stops[i], o: Any = options) -> Any:
                        return of_line(xl.restrict(m, a, b, **o))

                    yield f"line {name} {i} {'dense' if engine == 'dense' else 'patches'} {memory}", ask


def many() -> Iterator[tuple[str, Answer]]:
    """Many lines, paths, streams, limits, other precisions, and what is asked of a line afterwards."""
    for name, (module, shape) in networks().items():
        starts, stops = ends(shape, 9, 23)

        def together(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            return [of_line(line) for line in xl.restrict_many(m, a, b)]

        def path(m: Any = module, a: Tensor = starts) -> Any:
            return [of_line(line) for line in xl.restrict_path(m, a[:5])]

        def stream(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            return [of_line(part) for part in xl.sweep(m, a[1], b[1], memory=1 << 15)]

        def limited(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            return of_line(xl.restrict(m, a[2], b[2], max_breaks=9)), of_line(xl.restrict(m, a[2], b[2], values=False))

        def single(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            return of_line(xl.restrict(m, a[4], b[4], dtype=torch.float32))

        def later(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            line = xl.restrict(m, a[5], b[5])
            check, where = line.check(samples=50), line.at(torch.linspace(0, 1, 33))
            middle = line.piece(len(line) // 2)
            return of_line(line.minimal()), check.worst, where, middle.affine(), line.points, line.error

        def proof(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            line = xl.restrict(m, a[0], b[0])
            return dataclasses.astuple(line.certify(3))[:-1]  # numbers; the last field holds sentences

        tasks: list[tuple[str, Answer]] = [("many", together), ("path", path), ("stream", stream), ("limits", limited)]
        tasks += [("float32", single), ("later", later)]
        if name in ("mlp", "integers", "tent", "conv", "bias-free"):
            tasks.append(("certify", proof))
        yield from ((f"{kind} {name}", task) for kind, task in tasks)


def decisions() -> Iterator[tuple[str, Answer]]:
    """Classes, extremes and levels."""
    for name, (module, shape) in networks().items():
        starts, stops = ends(shape, 5, 31)
        if name in ("tent", "residual", "upsample"):
            continue

        def decide(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            found = xl.restrict_many(m, a, b).decisions()
            rows = [[(i.start, i.stop, i.label, i.margin) for i in each] for each in found]
            lowest = xl.restrict(m, a[1], b[1]).decisions("min", top=2)
            return rows, [(i.start, i.stop, i.label, i.margin) for i in lowest]

        def extremes(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            line = xl.restrict(m, a[2], b[2])
            found, level = line.extrema(0), line.level(0, 0.1)
            return found.minimum, found.maximum, found.argmin, found.argmax, level.alphas

        yield f"decide {name}", decide
        yield f"extrema {name}", extremes


def planes() -> Iterator[tuple[str, Answer]]:
    """Planes, their class regions and lines in them."""
    for name, (module, shape) in networks().items():
        if name in ("deep", "wide", "upsample", "tent", "digits", "encounter"):
            continue
        generator = torch.Generator().manual_seed(41)
        corners = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
        if len(shape) > 1:
            corners = corners[:1] + 0.15 * corners
        for memory in (None, 1 << 18):

            def plane(m: Any = module, c: Tensor = corners, memory: int | None = memory) -> Any:
                return of_plane(xl.restrict_plane(m, c, memory=memory))

            yield f"plane {name} {memory}", plane

        def regions(m: Any = module, c: Tensor = corners) -> Any:
            plane = xl.restrict_plane(m, c)
            found = plane.decisions()
            places = plane.corners[:7] * 0.5 + plane.corners.mean(0) * 0.5
            return found.totals, found.labels, plane.at(places), plane.locate(places)

        def crossing(m: Any = module, c: Tensor = corners) -> Any:
            plane = xl.restrict_plane(m, c)
            return of_line(plane.line(plane.outline.mean(0), plane.outline[0]))

        if name not in ("residual",):
            yield f"regions {name}", regions
        yield f"line in plane {name}", crossing


def attributions() -> Iterator[tuple[str, Answer]]:
    """Every class of attributions."""
    for name, (module, shape) in networks().items():
        if name in ("upsample",):
            continue
        starts, stops = (t.float() for t in ends(shape, 3, 53))

        def gradients(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            return attr.IntegratedGradients(m).attribute(b, baselines=a, target=0, return_convergence_delta=True)

        yield f"integrated gradients {name}", gradients
        layer = next((part for part in module.modules() if isinstance(part, (nn.ReLU, nn.LeakyReLU, nn.Conv2d))), None)
        if layer is None or name in ("softmax", "encounter"):
            continue

        def conductance(m: Any = module, a: Tensor = starts, b: Tensor = stops, layer: Any = layer) -> Any:
            return attr.LayerConductance(m, layer).attribute(b, baselines=a, target=0)

        def inner(m: Any = module, a: Tensor = starts, b: Tensor = stops, layer: Any = layer) -> Any:
            return attr.LayerIntegratedGradients(m, layer).attribute(b, baselines=a, target=0)

        def influence(m: Any = module, a: Tensor = starts, b: Tensor = stops, layer: Any = layer) -> Any:
            return attr.InternalInfluence(m, layer).attribute(b, baselines=a, target=0)

        yield f"layer conductance {name}", conductance
        yield f"layer integrated gradients {name}", inner
        yield f"internal influence {name}", influence
    model, shape = networks()["mlp"]
    starts, stops = ends(shape, 2, 59)

    def sampled() -> Any:
        line = xl.restrict(model, starts[1], stops[1])
        return (
            attr.integrate(line, 0),
            attr.integrate(line, 0, rule="trapezoid", n=40),
            attr.error_curve(line, 0, ("left", "right"), (5, 10)),
        )

    yield "sampling rules", sampled


def files() -> Iterator[tuple[str, Answer]]:
    """What is read back from files that were written."""
    for name in ("mlp", "conv", "hardtanh", "integers", "digits"):
        module, shape = networks()[name]
        starts, stops = ends(shape, 2, 61)

        def saved(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            with tempfile.TemporaryDirectory() as folder:
                line = xl.restrict(m, a[1], b[1])
                line.save(f"{folder}/a.safetensors")
                back = xl.Restriction.load(f"{folder}/a.safetensors", m)
                plane = xl.restrict_plane(m, torch.stack([a[0], a[1], b[0]])) if len(a.shape) == 2 else None
                if plane is None:
                    return of_line(back), back.error
                plane.save(f"{folder}/b.safetensors")
                return of_line(back), back.error, of_plane(xl.PlaneRestriction.load(f"{folder}/b.safetensors", m))

        def written(m: Any = module, a: Tensor = starts, b: Tensor = stops) -> Any:
            from exactline.network import as_network

            with tempfile.TemporaryDirectory() as folder:
                as_network(m, [a[1]]).save(f"{folder}/a.onnx")
                return of_line(xl.restrict(xl.load(f"{folder}/a.onnx"), a[1], b[1]))

        yield f"save {name}", saved
        yield f"onnx {name}", written


def published() -> Iterator[tuple[str, Answer]]:
    """Networks of other people, where there are any."""
    folder = os.environ.get("EXACTLINE_DATA")
    if not folder:
        return
    wanted = [
        "acasxu/nnet/*_1_1_*.nnet",
        "acasxu/nnet/*_2_3_*.nnet",
        "acasxu/onnx/*_1_9_*.onnx",
        "eran/mnist/*3_50*",
        "eran/mnist/*6_100*",
    ]
    wanted += [
        "eran/mnist/convSmallRELU__Point*",
        "eran/mnist/mnist_conv_maxpool*",
        "eran/cifar10/convSmallRELU__DiffAI*",
    ]
    wanted += [
        "vnncomp/2026r_nn4sys/*.onnx",
        "vnncomp/2026r_cersyve/*.onnx",
        "vnncomp/2022_collins_rul_cnn/*.onnx",
        "other/marabou/*.onnx",
    ]
    wanted += [
        "vnncomp/2026r_tll*/*.onnx",
        "vnncomp/2026r_safenlp*/*.onnx",
        "vnncomp/2021_oval21/*base*.onnx",
        "other/syrenn_vrl/*.eran",
    ]
    for pattern in wanted:
        for path in sorted(Path(folder).glob(pattern)):

            def ask(path: Path = path) -> Any:
                network = xl.load(path)
                shape = network.input_shape
                if not isinstance(shape, tuple) or (shape and not isinstance(shape[0], int)):
                    return "several inputs"
                generator = torch.Generator().manual_seed(71)
                a, b = torch.rand((2, *shape), generator=generator, dtype=torch.float64)  # pyright: ignore
                dense = of_line(xl.restrict(network, a, a + (b - a) * 0.25, engine="dense"))
                patches = of_line(xl.restrict(network, a, a + (b - a) * 0.25, engine=PATCHES))
                auto = of_line(xl.restrict(network, a * 0, b * 0.1))
                return dense, patches, auto

            yield f"file {path.relative_to(folder)}", ask


def stores() -> Iterator[tuple[str, Answer]]:
    """Answers for many lines in a store."""
    for name in ("mlp", "conv", "encounter"):
        module, shape = networks()[name]
        starts, stops = ends(shape, 40, 73)
        for job in ("restrict", "decide", "attribute"):

            def ask(m: Any = module, a: Tensor = starts, b: Tensor = stops, job: str = job) -> Any:
                options: dict[str, Any] = {"target": 0} if job == "attribute" else {}
                with tempfile.TemporaryDirectory() as folder:
                    store = xl.scale.run(m, torch.stack([a, b], 1), out=f"{folder}/s", job=job, **options)
                    if job == "restrict":
                        return [of_line(line) for line in store]
                    if job == "decide":
                        return [[(i.start, i.stop, i.label, i.margin) for i in each] for each in store]
                    return [field(each, "attributions", "attribution") for each in store]

            yield f"store {name} {job}", ask


def replies() -> Iterator[tuple[str, Answer]]:
    """Answers of a server on this machine."""

    def ask() -> Any:
        from exactline.network import as_network

        try:
            from exactline.rpc.client import Client
            from exactline.rpc.server.server import Server, Settings
        except ImportError:
            from exactline.rpc.client.sync import Client
            from exactline.rpc.server.server import Server, Settings
        found: list[Any] = []
        with tempfile.TemporaryDirectory() as folder:
            for name in ("mlp", "conv", "softmax", "integers"):
                module, shape = networks()[name]
                as_network(module, [torch.zeros(shape)]).save(f"{folder}/{name}.onnx")
            server = Server(Settings(port=0, workers=1, threads=1, models=Path(folder)))
            server.start()
            try:
                with Client(server.address) as client:
                    for name in ("mlp", "conv", "softmax", "integers"):
                        shape = networks()[name][1]
                        starts, stops = ends(shape, 5, 79)
                        found.append([of_line(line) for line in client.restrict_many(name, starts, stops)])
                        found.append(
                            [(i.start, i.stop, i.label, i.margin) for i in client.decide(name, starts[1], stops[1])]
                        )
                        found.append(client.attribute(name, stops[:2], baselines=starts[:2], target=0))
                        found.append([of_line(part) for part in client.sweep(name, starts[1], stops[1])])
                    starts, stops = ends((4,), 3, 83)
                    found.append(of_plane(client.plane("mlp", torch.stack([starts[1], stops[0], stops[1]]))))
            finally:
                server.stop()
        return found

    yield "server", ask


def other() -> Iterator[tuple[str, Answer]]:
    """Densities, counterexamples and the bundled studies' numbers."""
    model, shape = networks()["mlp"]
    starts, stops = ends(shape, 6, 89)

    def densities() -> Any:
        found = xl.density(model, starts[0], stops - starts[:1], length=1.5)
        return found.densities, found.pieces

    def counterexample() -> Any:
        text = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
        text += "(assert (>= X_0 -1))(assert (<= X_0 1))(assert (>= X_1 -1))(assert (<= X_1 1))(assert (>= Y_0 Y_1))"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "p.vnnlib")
            path.write_text(text)
            found = xl.falsify(zoo.loan_network(), path, seed=0)
            return found.answer, found.x, found.y, found.lines, found.pieces, found.margin

    yield "density", densities
    yield "falsify", counterexample


SETS = (lines, many, decisions, planes, attributions, files, published, stores, replies, other)


def main() -> int:
    """Compute all answers, write their hashes and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file for the hashes")
    parser.add_argument("--compare", type=Path, help="hashes of another commit")
    parser.add_argument("--only", default="", help="only answers whose name begins so")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, str] = {}
    for group in SETS:
        began = time.monotonic()
        count = 0
        for name, ask in group():
            if not name.startswith(options.only):
                continue
            try:
                found[name] = digest(ask())
            except xl.ExactlineError as problem:  # a refusal is an answer too; its words may change
                found[name] = f"refused: {type(problem).__name__}"
            count += 1
        print(f"{group.__name__}: {count} answers, {time.monotonic() - began:.1f} s", file=sys.stderr)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))
    if options.compare:
        before = json.loads(options.compare.read_text())
        shared = [name for name in found if name in before]
        changed = [name for name in shared if found[name] != before[name]]
        missing = [name for name in before if name not in found and name.startswith(options.only)]
        print(f"{len(shared) - len(changed)} of {len(shared)} answers are the same; {len(missing)} are missing")
        print("\n".join(f"changed: {name}" for name in changed))
        return 1 if changed or missing else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

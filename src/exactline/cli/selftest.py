"""Whether this installation works: versions, devices, extras, and a self-test on networks whose answers are known."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

import torch

from ..errors import ExactlineError
from ..humanize import count_noun

NEEDED = ("exactline", "torch", "numpy", "safetensors", "typer", "rich")
EXTRAS = {  # as in pyproject.toml: what pip install "exactline[name]" brings
    "plot": ("matplotlib", "plotly"),
    "onnx": ("onnx",),
    "exact": ("python-flint",),
    "fast": ("numba",),
    "serve": ("grpcio", "grpcio-health-checking", "grpcio-reflection", "protobuf"),
    "ray": ("ray",),
    "pandas": ("pandas",),
    "parquet": ("pyarrow",),
    "zarr": ("zarr",),
}
DIGITS = 9, 6  # a four and a three
DEPTH = 10
CLOSE = 1e-12


@dataclass(frozen=True)
class Device:
    """A place to compute."""

    name: str  # as --device takes it
    title: str
    memory: int | None = None  # bytes


@dataclass(frozen=True)
class Check:
    """One part of the self-test."""

    name: str
    passed: bool
    detail: str
    seconds: float


@dataclass(frozen=True)
class Health:
    """What `examine` found."""

    versions: dict[str, str | None]  # None where a package is missing
    devices: tuple[Device, ...]
    extras: dict[str, dict[str, str | None]]
    checks: tuple[Check, ...]

    @property
    def sound(self) -> bool:
        """Whether every part of the self-test passed."""
        return all(check.passed for check in self.checks)


def examine() -> Health:
    """Look at this installation and test it; what fails is told, not raised.

    >>> examine().sound
    True
    """
    versions = {"python": platform.python_version(), **{name: _version(name) for name in NEEDED}}
    extras = {extra: {name: _version(name) for name in names} for extra, names in EXTRAS.items()}
    places = tuple(devices())
    return Health(versions, places, extras, tuple(_checked(name, test) for name, test in _tests(places)))


def devices() -> Iterator[Device]:
    """Where sweeps can run."""
    threads = count_noun(torch.get_num_threads(), "thread")
    yield Device("cpu", f"{platform.machine()}, {platform.system()}, {threads}")
    for i in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(i)
        yield Device(f"cuda:{i}", str(facts.name), int(facts.total_memory))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class _Wrong(Exception):
    """An answer is not what it must be."""


def _checked(name: str, test: Callable[[], str]) -> Check:
    began = perf_counter()
    try:
        passed, detail = True, test()
    except ExactlineError as problem:
        passed, detail = False, f"{problem.problem} Try: {problem.hint}" if problem.hint else problem.problem
    except Exception as problem:  # noqa: BLE001 a self-test that ends in an error has failed, whatever the error
        first = (str(problem).strip().splitlines() or ["no reason given"])[0]
        passed, detail = False, first if isinstance(problem, _Wrong) else f"{type(problem).__name__}: {first}"
    return Check(name, passed, detail, perf_counter() - began)


def _tests(places: tuple[Device, ...]) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "a network solved by hand", _loan
    yield "a tent of 1,024 pieces", _tent
    yield "the digits network on a line", _digits
    yield "exact integrated gradients", _attribution
    yield "a plane solved by hand", _plane
    yield "an answer in a file", _file
    for place in places:
        if place.name != "cpu":
            yield f"the digits network on {place.name}", lambda name=place.name: _device(name)


def _expect(right: bool, wrong: str) -> None:
    if not right:
        raise _Wrong(wrong)


def _loan() -> str:
    from ..api import restrict
    from ..zoo import loan_line, loan_network

    line = restrict(loan_network(), *loan_line())
    truth = torch.tensor([0, 1 / 3, 2 / 3, 1], dtype=torch.float64)
    _expect(len(line) == 3, f"{len(line)} pieces instead of 3")
    _expect(bool((line.alphas - truth).abs().max() <= 1e-15), f"breaks at {line.alphas.tolist()}")
    score, premium, none = [-1.7, 1.0], [2.0, -1.3], [0.0, 0.0]
    maps = [torch.as_tensor(line.piece(i).affine()[0]).tolist() for i in range(3)]
    _expect(maps == [[none, premium], [score, premium], [score, none]], f"the maps are {maps}")
    return "breaks at 1/3 and 2/3, three maps"


def _tent() -> str:
    from ..api import restrict
    from ..zoo import tent_network

    line = restrict(tent_network(DEPTH), [0.0], [1.0])
    count = torch.arange(2**DEPTH + 1)
    _expect(torch.equal(line.alphas, count.double() / 2**DEPTH), f"{len(line)} pieces, not every multiple of 1/1024")
    _expect(torch.equal(torch.as_tensor(line.values)[:, 0], (count % 2).double()), "values are not 0 and 1 in turn")
    return "every multiple of 1/1024, to the last bit"


def _digits() -> str:
    from ..api import restrict
    from ..zoo import digits_images, digits_network

    images, labels = digits_images()
    ends = [images[i] for i in DIGITS]
    line = restrict(digits_network(), *ends)
    read = [decided.label for decided in (line.decisions()[0], line.decisions()[-1])]
    truth = [int(labels[i]) for i in DIGITS]
    _expect(read == truth, f"the ends are read as {read}, not {truth}")
    worst = line.check().worst
    _expect(worst <= CLOSE * max(1.0, float(torch.as_tensor(line.values).abs().max())), f"off torch by {worst:.2g}")
    _expect(line.ambiguous == 0, f"{line.ambiguous} units are not resolved")
    proof = line.certify(3)
    _expect(proof.proved == 3, f"of 3 pieces {proof.proved} are proved")
    return f"{len(line):,} pieces, {worst:.0e} from torch, 3 pieces proved in rationals"


def _attribution() -> str:
    from ..attr import IntegratedGradients
    from ..zoo import digits_images, digits_network

    images, labels = digits_images()
    image = images[DIGITS[0]][None].double()
    method = IntegratedGradients(digits_network())
    _, delta = method.attribute(image, target=int(labels[DIGITS[0]]), return_convergence_delta=True)
    worst = float(torch.as_tensor(delta).abs().max())
    _expect(worst <= CLOSE, f"the sum is off by {worst:.2g}")
    return f"they add up to within {worst:.0e}"


def _plane() -> str:
    from ..api import restrict_plane

    plane = restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    _expect(plane.areas.tolist() == [1.0] * 4, f"areas {plane.areas.tolist()} instead of four of 1")
    return "four quadrants"


def _file() -> str:
    from ..api import restrict
    from ..results.restriction import Restriction
    from ..zoo import loan_line, loan_network

    line = restrict(loan_network(), *loan_line())
    with tempfile.TemporaryDirectory() as folder:
        line.save(Path(folder) / "line.safetensors")
        again = Restriction.load(Path(folder) / "line.safetensors")
    same = torch.equal(line.alphas, again.alphas) and torch.equal(
        torch.as_tensor(line.values), torch.as_tensor(again.values)
    )
    _expect(same, "what was read is not what was written")
    return f"written and read in {Path(tempfile.gettempdir())}"


def _device(name: str) -> str:
    from ..api import restrict
    from ..zoo import digits_images, digits_network

    images, _ = digits_images()
    ours, theirs = (restrict(digits_network(), *(images[i] for i in DIGITS), device=d) for d in ("cpu", name))
    _expect(len(ours) == len(theirs), f"{len(theirs)} pieces, and {len(ours)} on the processor")
    apart = float((ours.alphas - theirs.alphas.cpu()).abs().max())
    _expect(apart <= CLOSE, f"breaks {apart:.2g} apart from the processor's")
    return f"{len(theirs):,} pieces, {apart:.0e} from the processor's"

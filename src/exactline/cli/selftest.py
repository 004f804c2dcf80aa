"""Examine an installation: versions, devices, extras, and a self-test on networks whose answers are known.

Each check imports what it needs itself, so that a module that cannot be imported is reported as a failed check.
"""

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

REQUIRED_PACKAGES = ("exactline", "torch", "numpy", "safetensors", "typer", "rich")
EXTRA_PACKAGES = {  # as in pyproject.toml: what pip install "exactline[name]" installs
    "plot": ("matplotlib",),
    "onnx": ("onnx",),
    "exact": ("python-flint",),
    "fast": ("numba",),
    "serve": ("grpcio", "grpcio-health-checking", "grpcio-reflection", "protobuf", "prometheus-client"),
    "ray": ("ray",),
    "sklearn": ("scikit-learn",),
    "pandas": ("pandas",),
    "parquet": ("pyarrow",),
    "zarr": ("zarr",),
}
DIGIT_PAIR = 9, 6  # indices of a four and a three
TENT_DEPTH = 10  # layers; the network has 2^10 pieces
LOAN_TOLERANCE = 1e-15  # in alpha: some ulps of 1/3 and 2/3
SELFTEST_TOLERANCE = 1e-12  # some thousand ulps of values of order 1


@dataclass(frozen=True)
class DeviceInfo:
    """A device that can compute."""

    name: str  # as --device takes it
    description: str
    memory_bytes: int | None = None


@dataclass(frozen=True)
class CheckResult:
    """The result of one check of the self-test."""

    name: str
    passed: bool
    detail: str
    seconds: float


@dataclass(frozen=True)
class InstallationReport:
    """What `examine_installation` found."""

    versions: dict[str, str | None]  # by package; None if it is missing
    devices: tuple[DeviceInfo, ...]
    extras: dict[str, dict[str, str | None]]  # by extra: versions by package
    checks: tuple[CheckResult, ...]

    @property
    def is_sound(self) -> bool:
        """Whether every check of the self-test passed."""
        return all(check.passed for check in self.checks)


def examine_installation() -> InstallationReport:
    """Examine and test this installation; failures are reported, not raised.

    >>> examine_installation().is_sound
    True
    """
    versions = {"python": platform.python_version(), **{name: _find_version(name) for name in REQUIRED_PACKAGES}}
    extras = {extra: {name: _find_version(name) for name in names} for extra, names in EXTRA_PACKAGES.items()}
    devices = tuple(list_devices())
    checks = tuple(_run_check(name, check) for name, check in _list_checks(devices))
    return InstallationReport(versions, devices, extras, checks)


def list_devices() -> Iterator[DeviceInfo]:
    """List the devices that can compute."""
    threads = count_noun(torch.get_num_threads(), "thread")
    yield DeviceInfo("cpu", f"{platform.machine()}, {platform.system()}, {threads}")
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        yield DeviceInfo(f"cuda:{i}", str(properties.name), int(properties.total_memory))


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class _WrongAnswer(Exception):
    """An answer differs from the known one."""


def _run_check(name: str, check: Callable[[], str]) -> CheckResult:
    start = perf_counter()
    try:
        passed, detail = True, check()
    except ExactlineError as problem:
        passed, detail = False, f"{problem.problem} Try: {problem.hint}" if problem.hint else problem.problem
    except Exception as problem:  # noqa: BLE001 - a check that raises any error has failed
        message = (str(problem).strip().splitlines() or ["no message"])[0]
        passed, detail = False, message if isinstance(problem, _WrongAnswer) else f"{type(problem).__name__}: {message}"
    return CheckResult(name, passed, detail, perf_counter() - start)


def _list_checks(devices: tuple[DeviceInfo, ...]) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "a network solved by hand", _check_loan
    yield "a tent map of 1,024 pieces", _check_tent
    yield "the digits network on a line", _check_digits
    yield "exact integrated gradients", _check_attribution
    yield "a plane solved by hand", _check_plane
    yield "a result in a file", _check_file
    for device in devices:
        if device.name != "cpu":
            yield f"the digits network on {device.name}", lambda name=device.name: _check_device(name)


def _expect(condition: bool, problem: str) -> None:
    if not condition:
        raise _WrongAnswer(problem)


def _check_loan() -> str:
    from ..api import restrict
    from ..zoo import loan_line, loan_network

    line = restrict(loan_network(), *loan_line())
    known = torch.tensor([0, 1 / 3, 2 / 3, 1], dtype=torch.float64)
    _expect(len(line) == 3, f"{len(line)} pieces instead of 3")
    _expect(bool((line.alphas - known).abs().max() <= LOAN_TOLERANCE), f"breaks at {line.alphas.tolist()}")
    score, premium, zero = [-1.7, 1.0], [2.0, -1.3], [0.0, 0.0]
    maps = [torch.as_tensor(line.piece(i).affine()[0]).tolist() for i in range(3)]
    _expect(maps == [[zero, premium], [score, premium], [score, zero]], f"the affine maps are {maps}")
    return "breaks at 1/3 and 2/3, three affine maps"


def _check_tent() -> str:
    from ..api import restrict
    from ..zoo import tent_network

    line = restrict(tent_network(TENT_DEPTH), [0.0], [1.0])
    count = torch.arange(2**TENT_DEPTH + 1)
    known = count.double() / 2**TENT_DEPTH
    _expect(torch.equal(line.alphas, known), f"{len(line)} pieces, not every multiple of 1/1024")
    _expect(torch.equal(torch.as_tensor(line.values)[:, 0], (count % 2).double()), "the values do not alternate")
    return "every multiple of 1/1024, to the last bit"


def _check_digits() -> str:
    from ..api import restrict
    from ..zoo import digits_images, digits_network

    images, labels = digits_images()
    line = restrict(digits_network(), *(images[i] for i in DIGIT_PAIR))
    decisions = line.decisions()
    classes, known = [decisions[0].label, decisions[-1].label], [int(labels[i]) for i in DIGIT_PAIR]
    _expect(classes == known, f"the ends are classified as {classes}, not {known}")
    worst, largest = line.check().worst, float(torch.as_tensor(line.values).abs().max())
    _expect(worst <= SELFTEST_TOLERANCE * max(1.0, largest), f"values differ from torch by {worst:.2g}")
    _expect(line.ambiguous == 0, f"{line.ambiguous} units are ambiguous")
    certificate = line.certify(3)
    _expect(certificate.proved == 3, f"only {certificate.proved} of 3 pieces are proved")
    return f"{len(line):,} pieces, within {worst:.0e} of torch, 3 pieces proved in rational arithmetic"


def _check_attribution() -> str:
    from ..attr import IntegratedGradients
    from ..zoo import digits_images, digits_network

    images, labels = digits_images()
    image = images[DIGIT_PAIR[0]][None].double()
    method = IntegratedGradients(digits_network())
    _, delta = method.attribute(image, target=int(labels[DIGIT_PAIR[0]]), return_convergence_delta=True)
    worst = float(torch.as_tensor(delta).abs().max())
    _expect(worst <= SELFTEST_TOLERANCE, f"the convergence delta is {worst:.2g}")
    return f"convergence delta {worst:.0e}"


def _check_plane() -> str:
    from ..api import restrict_plane

    plane = restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    _expect(plane.areas.tolist() == [1.0] * 4, f"areas {plane.areas.tolist()} instead of four times 1")
    return "four quadrants"


def _check_file() -> str:
    from ..api import restrict
    from ..results.restriction import Restriction
    from ..zoo import loan_line, loan_network

    line = restrict(loan_network(), *loan_line())
    with tempfile.TemporaryDirectory() as folder:
        line.save(Path(folder) / "line.safetensors")
        loaded = Restriction.load(Path(folder) / "line.safetensors")
    values = torch.as_tensor(line.values), torch.as_tensor(loaded.values)
    _expect(torch.equal(line.alphas, loaded.alphas) and torch.equal(*values), "the file was read back differently")
    return f"written and read in {Path(tempfile.gettempdir())}"


def _check_device(name: str) -> str:
    from ..api import restrict
    from ..zoo import digits_images, digits_network

    images, _ = digits_images()
    on_cpu, on_device = (restrict(digits_network(), *(images[i] for i in DIGIT_PAIR), device=d) for d in ("cpu", name))
    _expect(len(on_cpu) == len(on_device), f"{len(on_device)} pieces, but {len(on_cpu)} on the CPU")
    difference = float((on_cpu.alphas - on_device.alphas.cpu()).abs().max())
    _expect(difference <= SELFTEST_TOLERANCE, f"breaks differ from those on the CPU by {difference:.2g}")
    return f"{len(on_device):,} pieces, breaks within {difference:.0e} of those on the CPU"

"""What is asked of every line: its restriction, decisions, attribution, density, or a function of the user's."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..lines import Lines
from ..network.graph import Network
from .columns import Columns
from .encode import freeze

if TYPE_CHECKING:
    from ..results.restriction import Restriction
    from ..results.restrictions import Restrictions

NAMES = ("restrict", "decide", "attribute", "density")
INTERVALS = ("starts", "stops", "labels", "tied", "margins", "margins_at", "start_errors", "stop_errors")


@dataclass(frozen=True)
class Job:
    """One question, the same for all lines."""

    name: str  # one of NAMES, or "function"
    values: bool = True  # whether the network's values at the breaks are stored
    order: str = "max"
    top: int = 1
    output: int | None = None
    target: int | None = None  # None: the largest output at R
    function: Callable[[Restriction], Any] | None = None
    memory: int | None = None

    def facts(self) -> dict[str, Any]:
        """What makes it this job and no other, as JSON holds it."""
        found: dict[str, Any] = {"name": self.name}
        if self.name in ("restrict", "decide"):
            found["values"] = self.values
        if self.name == "decide":
            found |= {"order": self.order, "top": self.top, "output": self.output}
        if self.name == "attribute":
            found["target"] = self.target
        if self.function is not None:
            found["function"] = told(self.function)
        return found

    def compute(self, network: Network, lines: Lines, device: str | None = None) -> tuple[Columns, int, str]:
        """The answers for some lines that are swept together, how many breaks they have, and by which engine."""
        if self.name == "attribute":
            found, breaks = _attribution(network, lines, self.target, self.memory, device)
            engine = "dense"
        else:
            found, breaks, engine = self._restricted(network, lines, device)
        for side, group in (("start", lines.starts), ("end", lines.ends)):
            found |= {f"line/{side}.{k}": t for k, t in enumerate(group)}
        return found, breaks, engine

    def _restricted(self, network: Network, lines: Lines, device: str | None) -> tuple[Columns, int, str]:
        from ..api import restrict_many

        wanted = self.values if self.name == "restrict" else self.name != "density"
        answer = restrict_many(network, lines.starts, lines.ends, values=wanted, memory=self.memory, device=device)
        breaks = len(answer.alphas)
        if self.function is not None:
            return _asked(self.function, answer), breaks, answer.engine
        if self.name == "density":
            return _density(answer), breaks, answer.engine
        found = _breaks(answer, self.values)
        if self.name == "decide":
            found |= _intervals(answer, self.order, self.top, self.output)
        return found, breaks, answer.engine


def job_of(job: Any, **options: Any) -> Job:
    """A user's job, checked.

    Raises ArgumentError for a name that is none.
    """
    if isinstance(job, str) and job in NAMES:
        return Job(job, **options)
    if callable(job):
        return Job("function", **options, function=job)
    raise ArgumentError(
        f"job is {job!r}.", where="argument job", hint=f"Give {', '.join(NAMES)}, or a function of a Restriction."
    )


def told(function: Any) -> str:
    """A function by its name and its code, to know it again after a restart."""
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    code = getattr(function, "__code__", None)
    return f"{name}:{_code(code, 0):08x}" if isinstance(code, CodeType) else name


def _code(code: CodeType, before: int) -> int:
    total = zlib.crc32(code.co_code, before)
    total = zlib.crc32(repr((code.co_names, code.co_varnames)).encode(), total)
    for constant in code.co_consts:
        inner = isinstance(constant, CodeType)
        total = _code(constant, total) if inner else zlib.crc32(_steady(constant).encode(), total)
    return total


def _steady(constant: Any) -> str:
    """The same text in every process: sets print in no order."""
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def _breaks(answer: Restrictions, values: bool) -> Columns:
    found: Columns = {
        "line/count.break": answer.offsets.diff(),
        "break/alpha": answer.alphas,
        "break/node": answer.breaks.origins[:, 0],
        "break/unit": answer.breaks.origins[:, 1],
        "break/crossings": answer.breaks.origins[:, 2],
        "break/doubt": answer.breaks.ambiguous,
    }
    if values:
        found |= {f"break/value.{k}": v for k, v in enumerate(answer.breaks.values or ())}
    return found


def _intervals(answer: Restrictions, order: str, top: int, output: int | None) -> Columns:
    table = answer.decisions(order, top, output=output).table
    counts = torch.from_numpy(table.offsets).diff()
    return {"line/count.interval": counts} | {
        f"interval/{name}": torch.from_numpy(getattr(table, name)) for name in INTERVALS
    }


def _density(answer: Restrictions) -> Columns:
    counts = answer.offsets.diff()
    owner = torch.repeat_interleave(torch.arange(len(answer)), counts)
    nodes = len(answer.network.nodes)
    inner = answer.breaks.origins[:, 0] >= 0
    places = owner[inner] * nodes + answer.breaks.origins[inner, 0]
    births = torch.bincount(places, minlength=len(answer) * nodes).view(len(answer), nodes)
    squares = sum(
        (e - s).reshape(len(answer), -1).square().sum(1)
        for s, e in zip(answer.lines.starts, answer.lines.ends, strict=True)
    )
    lengths = torch.as_tensor(squares).sqrt()
    return {"line/count": counts, "line/length": lengths, "line/births": births[:, list(answer.network.breaking)]}


def _attribution(
    network: Network, lines: Lines, target: int | None, memory: int | None, device: str | None
) -> tuple[Columns, int]:
    from ..attr import IntegratedGradients
    from ..attr.inputs import flat_targets, one_output, outputs_at, values_at

    count = len(lines)
    shape = one_output(network)
    if target is None:
        (values,) = values_at(network, lines.ends, network.outputs[:1])
        targets = values.reshape(count, -1).argmax(1)
    else:
        targets = flat_targets(target, torch.Size([shape_size(shape)]), count)
    method = IntegratedGradients(network)
    places = [tuple(int(i) for i in torch.unravel_index(t, shape)) for t in targets] if shape else [()] * count
    made = method.attribute(lines.ends, baselines=lines.starts, target=places, memory=memory, device=device)
    report = method.report
    hanging = report.hanging if report is not None else torch.zeros(count)
    found: Columns = {f"line/attribution.{k}": a for k, a in enumerate(made)}
    for name, side in (("at_start", lines.starts), ("at_end", lines.ends)):
        found[f"line/{name}"] = outputs_at(network, side, targets).cpu()
    found |= {"line/target": targets, "line/hanging": hanging}
    return found, (report.pieces if report is not None else 0) + count


def shape_size(shape: tuple[int, ...]) -> int:
    """How many numbers a shape holds."""
    return torch.Size(shape).numel()


def _asked(function: Callable[[Restriction], Any], answer: Restrictions) -> Columns:
    blobs = [freeze(function(line)) for line in answer]
    counts = torch.tensor([len(b) for b in blobs], dtype=torch.int64)
    data: Tensor = torch.frombuffer(bytearray(b"".join(blobs) or b"\0"), dtype=torch.uint8)[: int(counts.sum())]
    return {"line/count.byte": counts, "byte/data": data}

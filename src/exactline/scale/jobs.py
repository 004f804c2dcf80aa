"""Jobs: what is computed for every line. Restrictions, decisions, attributions, densities, or a user's function."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from ..api import restrict_many
from ..attr import IntegratedGradients
from ..attr.inputs import evaluate_nodes, evaluate_targets, flatten_targets, single_output_shape
from ..errors import ArgumentError
from ..lines import Lines
from ..network.graph import Network
from ..results.codec import encode_store_ends
from ..results.restriction import Restriction
from ..results.restrictions import Restrictions
from .answers import encode_attributions, encode_decisions, encode_densities, encode_restrictions, encode_values
from .columns import Columns

JOB_NAMES = ("restrict", "decide", "attribute", "density")


@dataclass(frozen=True, eq=False)
class BatchAnswers:
    """The answers for lines that were swept together."""

    columns: Columns
    breaks: int  # of all lines
    engine: str  # the engine that swept them, and why


@dataclass(frozen=True)
class Job:
    """What to compute, the same for all lines."""

    name: str  # one of JOB_NAMES, or "function"
    values: bool = True  # whether the network's values at the breaks are stored
    order: str = "max"
    top: int = 1
    output: int | None = None
    target: int | None = None  # None: the largest output at the end of the line
    function: Callable[[Restriction], Any] | None = None
    memory: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The options that decide the answers, as the manifest stores them."""
        facts: dict[str, Any] = {"name": self.name}
        if self.name in ("restrict", "decide"):
            facts["values"] = self.values
        if self.name == "decide":
            facts |= {"order": self.order, "top": self.top, "output": self.output}
        if self.name == "attribute":
            facts["target"] = self.target
        if self.function is not None:
            facts["function"] = identify_function(self.function)
        return facts

    def compute(self, network: Network, lines: Lines, device: str | None = None) -> BatchAnswers:
        """The answers for some lines, swept together."""
        compute = self._attribute if self.name == "attribute" else self._restrict
        answers = compute(network, lines, device)
        return replace(answers, columns=answers.columns | encode_store_ends(lines))

    def _restrict(self, network: Network, lines: Lines, device: str | None) -> BatchAnswers:
        wanted = self.values if self.name == "restrict" else self.name != "density"
        answer = restrict_many(network, lines.starts, lines.ends, values=wanted, memory=self.memory, device=device)
        return BatchAnswers(self._encode(answer), len(answer.alphas), answer.engine)

    def _encode(self, answer: Restrictions) -> Columns:
        if self.function is not None:
            return encode_values([self.function(line) for line in answer])
        if self.name == "density":
            return encode_densities(answer.offsets.diff(), line_lengths(answer.lines), _count_origins(answer))
        if self.name == "decide":
            table = answer.decisions(self.order, self.top, output=self.output).table
            return encode_decisions(answer, table, values=self.values)
        return encode_restrictions(answer, values=self.values)

    def _attribute(self, network: Network, lines: Lines, device: str | None) -> BatchAnswers:
        count, shape = len(lines), single_output_shape(network)
        if self.target is None:
            (values,) = evaluate_nodes(network, lines.ends, network.outputs[:1])
            targets = values.reshape(count, -1).argmax(1)
        else:
            targets = flatten_targets(self.target, torch.Size([prod(shape)]), count)
        method = IntegratedGradients(network)
        indices = [tuple(int(i) for i in torch.unravel_index(t, shape)) for t in targets] if shape else [()] * count
        attributions = method.attribute(
            lines.ends, baselines=lines.starts, target=indices, memory=self.memory, device=device
        )
        report = method.report
        columns = encode_attributions(
            attributions,
            targets=targets,
            at_start=evaluate_targets(network, lines.starts, targets).cpu(),
            at_end=evaluate_targets(network, lines.ends, targets).cpu(),
            subgradient_range=torch.zeros(count) if report is None else report.subgradient_range,
        )
        return BatchAnswers(columns, (0 if report is None else report.pieces) + count, "dense")


def make_job(job: Any, **options: Any) -> Job:
    """The job that a user names or gives as a function.

    Raises ArgumentError for an unknown name.
    """
    if isinstance(job, str) and job in JOB_NAMES:
        return Job(job, **options)
    if callable(job):
        return Job("function", **options, function=job)
    raise ArgumentError(
        f"job is {job!r}.", where="argument job", hint=f"Give {', '.join(JOB_NAMES)}, or a function of a Restriction."
    )


def identify_function(function: Any) -> str:
    """The name of a function and a checksum of its code, equal in every process."""
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    code = getattr(function, "__code__", None)
    return f"{name}:{_code_crc(code, 0):08x}" if isinstance(code, CodeType) else name


def _code_crc(code: CodeType, crc: int) -> int:
    crc = zlib.crc32(code.co_code, crc)
    crc = zlib.crc32(repr((code.co_names, code.co_varnames)).encode(), crc)
    for constant in code.co_consts:
        is_code = isinstance(constant, CodeType)
        crc = _code_crc(constant, crc) if is_code else zlib.crc32(_stable_repr(constant).encode(), crc)
    return crc


def _stable_repr(constant: Any) -> str:
    """The repr of a constant; sets, whose order differs between processes, are sorted."""
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def line_lengths(lines: Lines) -> Tensor:
    """(lines,) the Euclidean length of each line."""
    squares = sum(
        (end - start).reshape(len(lines), -1).square().sum(1)
        for start, end in zip(lines.starts, lines.ends, strict=True)
    )
    return torch.as_tensor(squares).sqrt()


def _count_origins(answer: Restrictions) -> Tensor:
    """(lines, breaking nodes) how many breaks each node caused on each line."""
    owner = torch.repeat_interleave(torch.arange(len(answer)), answer.offsets.diff())
    nodes = len(answer.network.nodes)
    origins = answer.breaks.origins[:, 0]  # -1 at the ends of a line
    inner = origins >= 0
    counts = torch.bincount(owner[inner] * nodes + origins[inner], minlength=len(answer) * nodes)
    return counts.view(len(answer), nodes)[:, list(answer.network.breaking_nodes)]

"""Read If, Loop and Scan where no condition and no number of rounds depends on the network's input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ...network.builder import UnsupportedOperator, UnusableValue
from .. import limits
from .unsupported import UNSUPPORTED_REASONS
from .values import DependentValue, OnnxNode, Value, get_input

GRAPH_ATTRIBUTE = 5  # AttributeProto.AttributeType
CONTROL_FLOW = ("If", "Loop", "Scan")
OLDEST_SCAN_OPSET = 9  # before, the inputs of Scan had a batch dimension
MAX_ROUNDS = 1024  # of a Loop or a Scan, each of which is read by itself
# Reads a subgraph with values for its inputs, as a part of the node's name; None where it is not supported.
ReadSubgraph = Callable[[Any, Sequence[Value], str], "list[Value] | None"]


def iterate_read_names(node: Any) -> Iterator[str]:
    """Iterate over the names that a node reads, including those that its subgraphs read from the graphs around them."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == GRAPH_ATTRIBUTE:
            graph = attribute.g
            own = {v.name for v in (*graph.input, *graph.initializer)}
            own.update(name for inner in graph.node for name in inner.output)
            for inner in graph.node:
                yield from (name for name in iterate_read_names(inner) if name not in own)
            yield from (o.name for o in graph.output if o.name not in own)


def read_control_flow(
    node: OnnxNode, subgraphs: dict[str, Any], inputs: list[Value], read: ReadSubgraph
) -> list[Value]:
    """The values of the outputs of an If, a Loop or a Scan, whose rounds are read one after another.

    Args:
        node: the node.
        subgraphs: by the names of its attributes.
        inputs: of the node.
        read: reads a subgraph.

    Raises UnsupportedOperator where the input decides what is computed.
    """
    if node.op_type == "If":
        branch = "then_branch" if _is_true(node, get_input(inputs, 0)) else "else_branch"
        outputs = read(_get_subgraph(node, subgraphs, branch), [], "")
        return _make_unknown(node) if outputs is None else outputs
    body = _get_subgraph(node, subgraphs, "body")
    if node.op_type == "Loop":
        return _unroll_loop(node, body, inputs, read)
    unroll = _unroll_scan if node.opset >= OLDEST_SCAN_OPSET else _unroll_batched_scan
    return unroll(node, body, inputs, read)


def _unroll_loop(node: OnnxNode, body: Any, inputs: list[Value], read: ReadSubgraph) -> list[Value]:
    rounds = get_input(inputs, 0)
    rounds = MAX_ROUNDS + 1 if rounds is None else int(_read_scalar(node, rounds))
    goes_on, carried = get_input(inputs, 1), list(inputs[2:])
    _check_body(node, body, 2 + len(carried), 1 + len(carried))
    collected: list[list[Value]] = [[] for _ in body.output[1 + len(carried) :]]
    done = 0
    while done < rounds and _is_true(node, goes_on):
        _check_rounds(done + 1)
        start = torch.tensor(True) if goes_on is None else goes_on
        outputs = read(body, [torch.tensor(done), start, *carried], str(done))
        if outputs is None:
            return _make_unknown(node)
        goes_on, carried = outputs[0], outputs[1 : 1 + len(carried)]
        for values, output in zip(collected, outputs[1 + len(carried) :], strict=True):
            values.append(output)
        done += 1
    return [*carried, *(_stack(node, values, 0) for values in collected)]


def _unroll_batched_scan(node: OnnxNode, body: Any, inputs: list[Value], read: ReadSubgraph) -> list[Value]:
    """The outputs of a Scan of operator set 8: one scan for each entry of the first dimension."""
    if get_input(inputs, 0) is not None:
        raise UnsupportedOperator("has sequences of different lengths, which is not supported")
    counts = {tuple(v.shape)[:1] for v in inputs[1:] if v is not None}
    if len(counts) != 1 or counts == {()} or len(inputs) < 2 or any(v is None for v in inputs[1:]):
        raise node.make_error("Its inputs differ in their first dimension.")
    node.attributes["scan_input_directions"] = node.get_ints("directions")
    ((count,),) = counts
    _check_rounds(count)
    entries = [
        _unroll_scan(node, body, [_select(node, v, 0, b) for v in inputs[1:]], read, f"{b}/") for b in range(count)
    ]
    return [_stack(node, values, 0) for values in zip(*entries, strict=True)]


def _unroll_scan(node: OnnxNode, body: Any, inputs: list[Value], read: ReadSubgraph, entry: str = "") -> list[Value]:
    scanned_count = int(node.get_number("num_scan_inputs", 0))
    if not 1 <= scanned_count <= len(inputs) or any(v is None for v in inputs):
        raise node.make_error("It has no input to go through.")
    state, scanned = list(inputs[: len(inputs) - scanned_count]), inputs[len(inputs) - scanned_count :]
    _check_body(node, body, len(inputs), len(state))
    collected: list[list[Value]] = [[] for _ in body.output[len(state) :]]
    axes = _get_list(node, "scan_input_axes", scanned_count)
    axes = [node.resolve_axes([a], len(v.shape))[0] for a, v in zip(axes, scanned, strict=True)]
    lengths = {v.shape[a] for a, v in zip(axes, scanned, strict=True)}
    if len(lengths) != 1:
        raise node.make_error(f"Its inputs have different lengths: {sorted(lengths)}.")
    length = lengths.pop()
    _check_rounds(length)
    reversed_inputs = _get_list(node, "scan_input_directions", scanned_count)
    for done in range(length):
        places = [length - 1 - done if backwards else done for backwards in reversed_inputs]
        slices = [_select(node, v, a, i) for v, a, i in zip(scanned, axes, places, strict=True)]
        outputs = read(body, [*state, *slices], f"{entry}{done}")
        if outputs is None:
            return _make_unknown(node)
        state = outputs[: len(state)]
        for values, output in zip(collected, outputs[len(state) :], strict=True):
            values.append(output)
    axes = _get_list(node, "scan_output_axes", len(collected))
    reversed_outputs = _get_list(node, "scan_output_directions", len(collected))
    ordered = [v[::-1] if backwards else v for v, backwards in zip(collected, reversed_outputs, strict=True)]
    return [*state, *(_stack(node, values, axis) for values, axis in zip(ordered, axes, strict=True))]


def _get_subgraph(node: OnnxNode, subgraphs: dict[str, Any], name: str) -> Any:
    if name not in subgraphs:
        raise node.make_error(f"It has no {name}.")
    return subgraphs[name]


def _get_list(node: OnnxNode, key: str, count: int) -> list[int]:
    values = node.get_ints(key) or [0] * count
    if len(values) != count:
        raise node.make_error(f"Attribute {key} has {len(values)} numbers, not {count}.")
    return values


def _check_body(node: OnnxNode, body: Any, inputs: int, least_outputs: int) -> None:
    if len(body.input) != inputs or len(body.output) < least_outputs:
        raise node.make_error("Its body has another number of inputs or outputs.")


def _check_rounds(count: int) -> None:
    if count > MAX_ROUNDS:
        raise UnsupportedOperator(f"is control flow of more than {MAX_ROUNDS:,} rounds")


def _read_scalar(node: OnnxNode, value: Value) -> Any:
    """The number in a constant; raises UnsupportedOperator where it depends on the input."""
    if isinstance(value, DependentValue):
        raise UnsupportedOperator(UNSUPPORTED_REASONS[node.op_type])
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise node.make_error("A condition or a number of rounds is not one number.")
    return value.item()


def _is_true(node: OnnxNode, condition: Value) -> bool:
    """Whether a condition holds; a Loop may leave it out."""
    return (condition is None and node.op_type == "Loop") or bool(_read_scalar(node, condition))


def _select(node: OnnxNode, value: Value, axis: int, index: int) -> Value:
    return node.rearrange([value], lambda x: x.select(axis, index), "select")


def _stack(node: OnnxNode, values: Sequence[Value], axis: int) -> Value:
    if not values:
        raise UnsupportedOperator("collects the values of no rounds, whose shape is not known")
    if len({tuple(v.shape) for v in values}) > 1:
        raise node.make_error("Its rounds make values of different shapes.")
    (axis,) = node.resolve_axes([axis], len(values[0].shape) + 1)
    size = torch.Size(values[0].shape).numel()
    limits.count_elements([len(values), size], "the result", node.recorder.where, limits.MAX_VALUE_ELEMENTS)
    return node.rearrange(values, lambda *xs: torch.stack(xs, axis), "stack")


def _make_unknown(node: OnnxNode) -> list[Value]:
    """Outputs of a node whose subgraph is not supported."""
    return [DependentValue(UnusableValue(""), (), False)] * node.output_count

"""Read RNN with the activation Relu, unrolled over the steps of its sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from ...network.builder import UnsupportedOperator
from .affine import matmul
from .arithmetic import elementwise
from .shapes import get_shape
from .values import OnnxNode, Value, get_input, operator

MAX_STEPS = 1024
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}  # whether each goes backwards


def find_smooth_activation(node: OnnxNode) -> str | None:
    """The first activation of an RNN other than Relu; None where there is none."""
    given = node.get_attribute("activations", []) or ["Tanh"]
    names = [n.decode("utf-8", "replace") if isinstance(n, bytes) else str(n) for n in given]
    return next((name[:40] for name in names if name.lower() != "relu"), None)


@operator("RNN")
def rnn(node: OnnxNode, inputs: list[Value]) -> Value:
    activation = find_smooth_activation(node)
    if activation is not None:
        raise UnsupportedOperator(f"applies {activation}; only Relu is supported")
    if get_input(inputs, 4) is not None or node.get_attribute("clip") is not None:
        raise UnsupportedOperator("has sequences of different lengths, or clips its states, which is not supported")
    weight, recurrence = (node.require_constant(v, "its weights").to(torch.float64) for v in inputs[1:3])
    directions = DIRECTIONS.get(str(node.get_attribute("direction", "forward")), ())
    if weight.dim() != 3 or recurrence.dim() != 3 or not len(weight) == len(recurrence) == len(directions):
        raise node.make_error("Its direction and its weights do not fit together.")
    count, hidden = len(directions), recurrence.shape[-1]
    bias = torch.zeros(count, 2 * hidden, dtype=torch.float64)
    if get_input(inputs, 3) is not None:
        bias = node.require_constant(inputs[3], "its bias").to(torch.float64)
    x, start = inputs[0], get_input(inputs, 5)
    is_batch_first = bool(node.get_attribute("layout", 0))
    if is_batch_first:
        x, start = (v if v is None else _swap(node, v) for v in (x, start))
    steps, batch, _ = get_shape(x)
    if steps > MAX_STEPS:
        raise UnsupportedOperator(f"has a sequence of more than {MAX_STEPS:,} steps")
    start = torch.zeros(count, batch, hidden, dtype=torch.float64) if start is None else start
    states, last = [], []
    for d, is_reverse in enumerate(directions):
        first = node.rearrange([start], lambda v, d=d: v[d])
        shift = bias[d].reshape(2, hidden).sum(0)
        order = range(steps)[::-1] if is_reverse else range(steps)
        found = _unroll(node, x, order, first, weight[d].T, recurrence[d].T, shift)
        last.append(found[-1])
        states.append(node.rearrange(found[::-1] if is_reverse else found, lambda *vs: torch.stack(vs)[:, None]))
    joined = node.rearrange(states, lambda *vs: torch.cat(vs, 1))  # (steps, directions, batch, hidden)
    final = node.rearrange(last, lambda *vs: torch.stack(vs))  # (directions, batch, hidden)
    if is_batch_first:
        return node.rearrange([joined], lambda v: v.permute(2, 0, 1, 3)), _swap(node, final)
    return joined, final


def _unroll(
    node: OnnxNode, x: Value, order: range, state: Value, weight: Tensor, recurrence: Tensor, shift: Tensor
) -> list[Value]:
    """The states (batch, hidden) after each step of x, (steps, batch, features), in an order."""
    states: list[Value] = []
    for step in order:
        now = node.rearrange([x], lambda v, step=step: v[step])
        terms = matmul(node, [now, weight]), matmul(node, [state, recurrence])
        total = elementwise(node, "add.Tensor", elementwise(node, "add.Tensor", *terms), shift)
        state = elementwise(node, "relu", total)
        states.append(state)
    return states


def _swap(node: OnnxNode, value: Value) -> Value:
    """A value whose first two dimensions are swapped."""
    return node.rearrange([value], lambda v: v.transpose(0, 1))

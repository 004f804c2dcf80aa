"""Recurrent ONNX operators as functions of torch: LSTM, GRU and RNN, one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ...network.builder import UnsupportedOperator
from .values import OnnxNode

State: TypeAlias = tuple[Tensor, ...]  # (batch, hidden) each; the first is the output of a step
Step: TypeAlias = Callable[[Tensor, State], State]
ACTIVATIONS = {"Sigmoid": torch.sigmoid, "Tanh": torch.tanh, "Relu": torch.relu}


def lstm(
    node: OnnxNode,
    x: Tensor,  # (time, batch, in)
    w: Tensor,  # (directions, 4 hidden, in): input, output, forget and cell gates
    r: Tensor,  # (directions, 4 hidden, hidden)
    b: Tensor | None = None,  # (directions, 8 hidden)
    lengths: Tensor | None = None,
    h: Tensor | None = None,  # (directions, batch, hidden)
    c: Tensor | None = None,  # (directions, batch, hidden)
    peepholes: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Long short-term memory."""
    _refuse_variants(node, lengths, peepholes)
    names = _activations(node, ("Sigmoid", "Tanh", "Tanh"))

    def make_step(d: int) -> Step:
        gate, cell, output = (ACTIVATIONS[n] for n in names[3 * d : 3 * d + 3])
        bias = 0.0 if b is None else b[d].reshape(2, -1).sum(0)

        def step(now: Tensor, state: State) -> State:
            i, o, f, new = (now @ w[d].T + state[0] @ r[d].T + bias).chunk(4, -1)
            memory = gate(f) * state[1] + gate(i) * cell(new)
            return gate(o) * output(memory), memory

        return step

    return _run(node, x, r, [h, c], make_step)


def gru(
    node: OnnxNode,
    x: Tensor,  # (time, batch, in)
    w: Tensor,  # (directions, 3 hidden, in): update, reset and hidden gates
    r: Tensor,  # (directions, 3 hidden, hidden)
    b: Tensor | None = None,  # (directions, 6 hidden)
    lengths: Tensor | None = None,
    h: Tensor | None = None,  # (directions, batch, hidden)
) -> tuple[Tensor, ...]:
    """Gated recurrent unit."""
    _refuse_variants(node, lengths, None)
    names = _activations(node, ("Sigmoid", "Tanh"))
    resets_after = bool(node.get_attribute("linear_before_reset", 0))

    def make_step(d: int) -> Step:
        gate, hidden = (ACTIVATIONS[n] for n in names[2 * d : 2 * d + 2])
        wb, rb = (torch.zeros_like(w[d, :, 0]),) * 2 if b is None else b[d].chunk(2)

        def step(now: Tensor, state: State) -> State:
            inputs, before = now @ w[d].T + wb, state[0]
            own = r[d].chunk(3)
            own_bias = rb.chunk(3)
            z, reset, new = inputs.chunk(3, -1)
            z = gate(z + before @ own[0].T + own_bias[0])
            reset = gate(reset + before @ own[1].T + own_bias[1])
            if resets_after:
                candidate = hidden(new + reset * (before @ own[2].T + own_bias[2]))
            else:
                candidate = hidden(new + (reset * before) @ own[2].T + own_bias[2])
            return ((1 - z) * candidate + z * before,)

        return step

    return _run(node, x, r, [h], make_step)


def rnn(
    node: OnnxNode,
    x: Tensor,  # (time, batch, in)
    w: Tensor,  # (directions, hidden, in)
    r: Tensor,  # (directions, hidden, hidden)
    b: Tensor | None = None,  # (directions, 2 hidden)
    lengths: Tensor | None = None,
    h: Tensor | None = None,  # (directions, batch, hidden)
) -> tuple[Tensor, ...]:
    """Simple recurrent unit."""
    _refuse_variants(node, lengths, None)
    names = _activations(node, ("Tanh",))

    def make_step(d: int) -> Step:
        bias = 0.0 if b is None else b[d].reshape(2, -1).sum(0)
        return lambda now, state: (ACTIVATIONS[names[d]](now @ w[d].T + state[0] @ r[d].T + bias),)

    return _run(node, x, r, [h], make_step)


def _run(
    node: OnnxNode, x: Tensor, r: Tensor, initial: Sequence[Tensor | None], make_step: Callable[[int], Step]
) -> tuple[Tensor, ...]:
    """Run all directions; returns the outputs of all steps, (time, directions, batch, hidden), and the last states."""
    outputs, last = list[Tensor](), list[State]()
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    for d, is_reversed in enumerate(directions[node.get_attribute("direction", "forward")]):
        zeros = torch.zeros(x.shape[1], r.shape[-1], dtype=x.dtype, device=x.device)
        state: State = tuple(zeros if s is None else s[d] for s in initial)
        step, found = make_step(d), list[Tensor]()
        for now in reversed(x.unbind(0)) if is_reversed else x.unbind(0):
            state = step(now, state)
            found.append(state[0])
        outputs.append(torch.stack(found[::-1] if is_reversed else found))
        last.append(state)
    return (torch.stack(outputs, 1), *(torch.stack(column) for column in zip(*last, strict=True)))


def _activations(node: OnnxNode, default: Sequence[str]) -> list[str]:
    directions = 2 if node.get_attribute("direction", "forward") == "bidirectional" else 1
    names = list(node.get_attribute("activations", ())) or [*default] * directions
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in names]
    if any(n not in ACTIVATIONS for n in names) or len(names) != directions * len(default):
        raise UnsupportedOperator(f"has activations {', '.join(names)[:80]}, which are not supported")
    return names


def _refuse_variants(node: OnnxNode, lengths: Tensor | None, peepholes: Tensor | None) -> None:
    for key in ("clip", "input_forget", "layout"):
        if node.get_attribute(key):
            raise UnsupportedOperator(f"has the attribute {key}, which is not supported")
    if lengths is not None or peepholes is not None:
        raise UnsupportedOperator("has sequence lengths or peepholes, which are not supported")

"""Constants that are made like a part of the batch: they depend on its shape alone, which is fixed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

aten: Any = torch.ops.aten
FILL_VALUES = {aten.zeros_like: 0, aten.ones_like: 1, aten.new_zeros: 0, aten.new_ones: 1}
FILL_ARGUMENTS = {aten.full_like: 1, aten.new_full: 2}  # the position of the value


def replace_static_constants(program: ExportedProgram) -> None:
    """Replace ``zeros_like(x[0:1])`` and its kind, in place, by constants that do not read ``x``.

    The slice takes the first point of the batch, which would mix points, but only its shape is used.
    """
    changed = False
    for node in list(program.graph.nodes):
        value, fill = node.meta.get("val"), _fill_value(node)
        if fill is None or not isinstance(value, Tensor) or not all(isinstance(d, int) for d in value.shape):
            continue
        options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
        with program.graph.inserting_before(node):
            constant = program.graph.call_function(aten.full.default, ([*value.shape], fill), options)
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
        program.graph.erase_node(node)
        changed = True
    if changed:
        program.graph.eliminate_dead_code()
        program.graph_module.recompile()


def _fill_value(node: Any) -> Any:
    """The number that all elements of a node have; None for other nodes."""
    packet = getattr(node.target, "overloadpacket", None)
    if node.op != "call_function" or packet is None:
        return None
    if packet in FILL_ARGUMENTS:
        position = FILL_ARGUMENTS[packet]
        value = node.args[position] if len(node.args) > position else node.kwargs.get("fill_value")
        return value if isinstance(value, (int, float)) else None
    return FILL_VALUES.get(packet)

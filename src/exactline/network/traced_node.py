"""What a node of an exported graph says about itself: its operator, its module, and sizes that are not known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def module_path(node: Any) -> str:
    """The path of the innermost module that a node belongs to, as in named_modules()."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((p for entry in reversed(list(stack.values())) if (p := clean_module_path(entry[0]))), "")


def clean_module_path(path: str) -> str:
    """Remove what torch.export adds to the path of a module."""
    return path.removeprefix("L['self']").removeprefix(".").split("@")[0]


def is_overload(target: Any) -> bool:
    """Whether a call target is a torch operator, rather than one of Python."""
    return isinstance(target, torch._ops.OpOverload)  # pyright: ignore[reportPrivateUsage]


def operator_name(target: Any) -> str:
    """The name of a torch operator without its namespace and overload."""
    return target._schema.name.split("::")[1]


def source_operator_name(node: Any) -> str:
    """The operator in the model that a node comes from: its own, or the one that torch decomposed."""
    source = str(node.meta["from_node"][0].target).split(".") if node.meta.get("from_node") else []
    if len(source) == 3 and source[0] == "aten":
        return source[1]
    return operator_name(node.target) if is_overload(node.target) else node.name


def count_symbolic_dims(node: Any) -> int:
    """How many dimensions of a traced tensor depend on the batch size; the fewest of several tensors."""
    values = [v for v in as_list(node.meta.get("val")) if isinstance(v, Tensor)]
    return min((sum(not isinstance(d, int) for d in v.shape) for v in values), default=0)


def as_list(value: Any) -> list[Any]:
    """A traced value as a list of one, or several as they are."""
    return list(value) if isinstance(value, (tuple, list)) else [value]

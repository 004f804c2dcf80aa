"""Convert a stack of torch's own layers without torch.export, which takes a tenth of a second for a small model."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ExactlineError
from ..ops.base import Input
from .aten import RULES
from .aten.registry import bind_arguments
from .builder import GraphBuilder, NodeOutput, UnsupportedOperator
from .constants import read_parameter
from .graph import Network

Call: TypeAlias = tuple[Any, list[Any]]  # a torch operator, and its arguments after the input

TORCH_FOLDER = str(Path(torch.__file__).parent)
aten: Any = torch.ops.aten


def _convolution(operator: Any) -> Callable[[Any], Call | None]:
    def convert(layer: Any) -> Call | None:
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            return None
        settings = [list(layer.stride), list(layer.padding), list(layer.dilation), layer.groups]
        return operator, [layer.weight, layer.bias, *settings]

    return convert


def _batch_norm(layer: Any) -> Call | None:
    if layer.training or layer.running_mean is None or layer.momentum is None:
        return None
    statistics = [layer.running_mean, layer.running_var]
    return aten.batch_norm.default, [layer.weight, layer.bias, *statistics, False, layer.momentum, layer.eps, False]


def _max_pool(layer: Any) -> Call | None:
    if layer.return_indices:
        return None
    sizes = [layer.kernel_size, layer.stride, layer.padding, layer.dilation]
    return aten.max_pool2d.default, [*map(_pair, sizes), layer.ceil_mode]


def _average_pool(layer: Any) -> Call:
    sizes = [layer.kernel_size, layer.stride, layer.padding]
    flags = [layer.ceil_mode, layer.count_include_pad, layer.divisor_override]
    return aten.avg_pool2d.default, [*map(_pair, sizes), *flags]


def _pair(size: int | Sequence[int]) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)


# The torch operator that each layer calls; None where this layer is left to torch.export.
CONVERTERS: dict[type[nn.Module], Callable[[Any], Call | None]] = {
    nn.Linear: lambda layer: (aten.linear.default, [layer.weight, layer.bias]),
    nn.Conv1d: _convolution(aten.conv1d.default),
    nn.Conv2d: _convolution(aten.conv2d.default),
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.ReLU: lambda layer: None if layer.inplace else (aten.relu.default, []),
    nn.LeakyReLU: lambda layer: None if layer.inplace else (aten.leaky_relu.default, [layer.negative_slope]),
    nn.Hardtanh: lambda layer: None if layer.inplace else (aten.hardtanh.default, [layer.min_val, layer.max_val]),
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.Flatten: lambda layer: (aten.flatten.using_ints, [layer.start_dim, layer.end_dim]) if layer.start_dim else None,
}
# How many dimensions a point must have: with one dimension fewer, torch takes a batch for a single point.
POINT_DIMENSIONS: dict[type[nn.Module], tuple[int, ...]] = {
    nn.Conv1d: (2,),
    nn.Conv2d: (3,),
    nn.BatchNorm1d: (1, 2),
    nn.BatchNorm2d: (3,),
    nn.MaxPool2d: (3,),
    nn.AvgPool2d: (3,),
}
# What the forward passes of these layers call; a replaced one may compute anything.
LAYER_FUNCTIONS = (
    *("linear", "conv1d", "conv2d", "batch_norm"),
    *("relu", "leaky_relu", "hardtanh", "max_pool2d", "avg_pool2d"),
)
# What the body of a class that defines nothing but __init__ holds.
BUILDER_ATTRIBUTES = {
    *("__init__", "__doc__", "__module__", "__annotations__", "__parameters__", "__orig_bases__"),
    *("__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotations_cache__"),
}
CALL_METHODS = ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__")  # of every module


def read_sequential(model: nn.Module, shape: Sequence[int]) -> Network | None:
    """Convert a layer, or a `torch.nn.Sequential` of layers, that `CONVERTERS` lists.

    A subclass of `torch.nn.Sequential` that defines nothing but ``__init__`` counts as one. The network is the one that
    `torch.export` would lead to, with the same names and paths.

    Args:
        model: a module in evaluation mode.
        shape: of a point, without a batch dimension.

    Returns None for any other model, also one with hooks, replaced methods or a point that does not fit; torch.export
    then either traces it or says what is wrong.
    """
    if torch._C._len_torch_function_stack() or _has_global_hooks() or _has_replaced_functions():
        return None
    layers = list(_list_layers(model, ""))
    weights = [w for w in (*model.parameters(), *model.buffers()) if w.is_floating_point()]
    repeated = len({id(layer) for _, layer in layers}) < len(layers)  # torch.export names the second call otherwise
    if repeated or not all(_is_plain(layer) for _, layer in layers) or len({(w.device, w.dtype) for w in weights}) > 1:
        return None
    builder, numbers = GraphBuilder(name="input"), Counter[str]()
    value = builder.add_node(Input(), [], shape)
    dtype = weights[0].dtype if weights else None
    batch = torch.empty(0, *shape, dtype=dtype, device=weights[0].device if weights else None)
    try:
        for path, layer in layers:
            call = CONVERTERS[type(layer)](layer)
            if call is None or not _takes_points(layer, batch.shape[1:]):
                return None
            target, arguments = call
            with torch.no_grad():
                batch = target(batch, *arguments)  # no points: only the shape is computed
            _name_call(builder, numbers, target)
            builder.path, builder.shape = path, tuple(batch.shape[1:])
            value = _add_call(builder, value, target, arguments)
    except (UnsupportedOperator, RuntimeError, ExactlineError):
        return None
    return Network(tuple(builder.nodes), (value.index,), (None,), notes=tuple(builder.notes))


def _takes_points(layer: Any, shape: torch.Size) -> bool:
    """Whether a layer takes points of this shape, as far as its operator does not check it."""
    if len(shape) not in POINT_DIMENSIONS.get(type(layer), (len(shape),)):
        return False
    return not hasattr(layer, "running_mean") or shape[0] == len(layer.running_mean)


def _name_call(builder: GraphBuilder, numbers: Counter[str], target: Any) -> None:
    """Name the next node as torch.export does: linear, linear_1, linear_2."""
    name = target._schema.name.split("::")[1]
    builder.name = f"{name}_{numbers[name]}" if numbers[name] else name
    numbers[name] += 1
    builder.target, builder.call = f"{name}.{target._overloadname}", target


def _add_call(builder: GraphBuilder, value: NodeOutput, target: Any, arguments: list[Any]) -> NodeOutput:
    """Add the nodes of one operator by its conversion rule."""
    constants = [read_parameter(a, builder.path) if isinstance(a, Tensor) else a for a in arguments]
    rule = RULES.get(builder.target) or RULES[builder.target.partition(".")[0]]
    return builder.as_node_output(rule(builder, bind_arguments(target, [value, *constants], {})))


def _list_layers(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested `torch.nn.Sequential` modules in order, each with its path."""
    if _is_stack(module):
        for name, child in module._modules.items():
            yield from _list_layers(cast(nn.Module, child), f"{path}.{name}".removeprefix("."))
    else:
        yield path, module


def _is_stack(module: nn.Module) -> bool:
    """Whether a module only calls its children in turn: torch's own class, or a subclass that only builds layers."""
    if not isinstance(module, nn.Sequential):
        return False
    kinds = type(module).__mro__
    subclasses = kinds[: kinds.index(nn.Sequential)]
    builds_only = all(vars(kind).keys() <= BUILDER_ATTRIBUTES for kind in subclasses)
    return builds_only and not _is_customized(module, nn.Sequential)


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer is one of torch's own with ordinary weights, and nothing attached to it."""
    if type(layer) not in CONVERTERS or _is_customized(layer):
        return False
    weights = (*layer._parameters.values(), *layer._buffers.values())
    return all(w is None or type(w) in (nn.Parameter, Tensor) for w in weights)


def _is_customized(module: nn.Module, first: type[nn.Module] | None = None) -> bool:
    """Whether hooks or replaced methods change what a module computes.

    Args:
        module: A module.
        first: The first class, in method resolution order, whose methods are looked at; by default that of the module.
    """
    kind = type(module)
    replaced = any(callable(getattr(kind, name, None)) for name in vars(module))
    methods = [getattr(kind, name) for name in CALL_METHODS]
    for base in kind.__mro__[kind.__mro__.index(first or kind) : kind.__mro__.index(nn.Module)]:
        methods += [value for value in vars(base).values() if isinstance(value, types.FunctionType)]
    foreign = not all(map(_is_from_torch, methods))
    return replaced or foreign or bool(module._forward_hooks or module._forward_pre_hooks)


def _is_from_torch(function: Any) -> bool:
    """Whether a function or method is one of torch's own, or written in C."""
    code = getattr(function, "__code__", None)
    if code is None:
        return isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType))
    return code.co_filename.startswith(TORCH_FOLDER)


def _has_replaced_functions() -> bool:
    functions = (*(getattr(F, name) for name in LAYER_FUNCTIONS), Tensor.flatten)
    return not all(map(_is_from_torch, functions))


def _has_global_hooks() -> bool:
    from torch.nn.modules import module

    return bool(module._global_forward_hooks or module._global_forward_pre_hooks)

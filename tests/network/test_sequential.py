"""Stacks of torch's own layers are converted directly, to the network that torch.export leads to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from exactline.network.capture import export_module
from exactline.network.reader import read_program
from exactline.network.sequential import read_sequential


def norm(layer: nn.Module) -> nn.Module:
    """A BatchNorm with statistics that are not those of a new one."""
    for buffer in (layer.running_mean, layer.running_var):
        buffer.copy_(torch.rand_like(buffer) + 0.5)
    return layer


class Built(nn.Sequential):
    """A stack that builds its layers itself."""

    def __init__(self, units: int) -> None:
        super().__init__(nn.Linear(3, units), nn.ReLU(), nn.Linear(units, 2))
        self.units = units


class Halved(Built):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x / 2)


class Backwards(Built):
    def __iter__(self):
        return iter([self[0], self[2], self[1]])


class Extended(Halved):
    def __init__(self) -> None:
        super().__init__(2)


def with_hook_on_subclass() -> nn.Module:
    model = Built(4)
    model.register_forward_hook(lambda module, args, output: 2 * output)
    return model


STACKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "one layer": (lambda: nn.Linear(3, 2), (3,)),
    "no layer": (lambda: nn.Sequential(), (3,)),
    "mlp": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4, bias=False), nn.LeakyReLU(0.1)), (3,)),
    "builds its layers": (lambda: Built(4), (3,)),
    "float64": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Hardtanh(-2, 0.5), norm(nn.BatchNorm1d(4))).double(), (3,)),
    "one dimension": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3, dilation=2, groups=2), norm(nn.BatchNorm1d(4)), nn.Flatten()),
        (2, 9),
    ),
    "two dimensions": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=(1, 2), padding=1),
            norm(nn.BatchNorm2d(4, affine=False)),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1, ceil_mode=True),
            nn.Sequential(nn.Conv2d(4, 2, 2), nn.AvgPool2d(2, 1, padding=1, count_include_pad=False)),
            nn.Flatten(),
            nn.Linear(24, 2),
        ),
        (1, 7, 9),
    ),
}


@pytest.mark.parametrize("name", STACKS)
def test_the_network_is_the_one_of_torch_export(name: str) -> None:
    make, shape = STACKS[name]
    model = make().eval()
    direct, exported = read_sequential(model, shape), read_program(export_module(model, [torch.zeros(shape)]))
    assert direct is not None
    assert [(n.name, n.path, n.inputs, n.shape, type(n.op)) for n in direct.nodes] == [
        (n.name, n.path, n.inputs, n.shape, type(n.op)) for n in exported.nodes
    ]
    assert direct.outputs == exported.outputs
    points = torch.randn(5, *shape, dtype=torch.float64)
    assert torch.equal(direct(points), exported(points))


class Scaled(nn.Linear):
    """A layer that computes something else than its base class."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Weight(nn.Parameter):
    """A parameter that may intercept torch's functions."""


def with_hook() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    return model


def with_outer_hook() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 2))
    model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    return model


def with_replaced_forward() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].forward = lambda input: input  # type: ignore[method-assign]
    return model


def with_special_weight() -> nn.Module:
    model = nn.Linear(3, 2)
    model._parameters["weight"] = Weight(torch.ones(2, 3))
    return model


def with_repeated_layer() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(relu, nn.Linear(3, 3), relu)


OTHER_MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "subclass": (lambda: nn.Sequential(Scaled(3, 2)), (3,)),
    "subclass with a forward of its own": (lambda: Halved(4), (3,)),
    "subclass with an order of its own": (lambda: Backwards(2), (3,)),
    "subclass of such a subclass": (Extended, (3,)),
    "subclass with a hook": (with_hook_on_subclass, (3,)),
    "hook": (with_hook, (3,)),
    "hook of the stack": (with_outer_hook, (3,)),
    "replaced forward": (with_replaced_forward, (3,)),
    "parametrized": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), (3,)),
    "special weight": (with_special_weight, (3,)),
    "repeated layer": (with_repeated_layer, (3,)),
    "in place": (lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU(inplace=True)), (3,)),
    "other layer": (lambda: nn.Sequential(nn.Linear(3, 2), nn.GELU()), (3,)),
    "batch taken for a point": (lambda: nn.Conv2d(3, 3, 1), (4, 4)),
    "batch flattened": (lambda: nn.Flatten(0), (1,)),
    "wrong width": (lambda: nn.Linear(4, 2), (3,)),
    "one number": (lambda: nn.Linear(4, 2), (1,)),
    "no dimension": (lambda: nn.Linear(3, 2), ()),
    "wrong number of channels": (lambda: nn.Conv2d(2, 2, 1), (1, 4, 4)),
    "wrong number of features": (lambda: nn.BatchNorm2d(2), (1, 4, 4)),
    "mixed precision": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).double()), (3,)),
    "indices": (lambda: nn.MaxPool2d(2, return_indices=True), (1, 4, 4)),
    "batch statistics": (lambda: nn.BatchNorm1d(3, track_running_stats=False), (3,)),
    "reflected edge": (lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), (1, 4, 4)),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_any_other_model_is_left_to_torch_export(name: str) -> None:
    make, shape = OTHER_MODELS[name]
    assert read_sequential(make().eval(), shape) is None


def test_infinite_weights_are_left_to_torch_export() -> None:
    model = nn.Linear(3, 2)
    model.weight.data[0, 0] = torch.inf
    assert read_sequential(model, (3,)) is None


def test_global_hooks_and_function_modes_are_left_to_torch_export() -> None:
    class Mode(TorchFunctionMode):
        pass

    model = nn.Linear(3, 2)
    with Mode():
        assert read_sequential(model, (3,)) is None
    hook = nn.modules.module.register_module_forward_hook(lambda module, args, output: output)
    try:
        assert read_sequential(model, (3,)) is None
    finally:
        hook.remove()
    assert read_sequential(model, (3,)) is not None


def test_a_layer_class_whose_forward_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Linear, "forward", lambda self, input: input)
    assert read_sequential(nn.Linear(3, 2), (3,)) is None


@pytest.mark.parametrize(
    ("owner", "name"),
    [(nn.Conv2d, "_conv_forward"), (nn.Module, "_call_impl"), (nn.functional, "conv2d"), (Tensor, "flatten")],
    ids=["method of the layer", "call of any module", "function of torch", "method of a tensor"],
)
def test_anything_replaced_that_a_layer_calls(owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten())
    assert read_sequential(model, (1, 2, 2)) is not None
    monkeypatch.setattr(owner, name, lambda *args, **settings: args[0])
    assert read_sequential(model, (1, 2, 2)) is None


def test_a_method_replaced_in_one_layer() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1))
    model[0]._conv_forward = lambda input, weight, bias: input  # type: ignore[method-assign]
    assert read_sequential(model, (1, 2, 2)) is None

"""A change of anything that forward reads is noticed: the next call answers for the changed module."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import exactline as xl
from exactline import network as networks
from exactline.network.fingerprint import fingerprint_module

START, END = torch.tensor([-1.0, 2.0, 0.5]), torch.tensor([2.0, -1.5, 1.0])
SLOPE = 0.5
WEIGHTS = torch.tensor([1.0, 2.0, 3.0])


@dataclasses.dataclass
class Settings:
    slope: float = 0.5


class Holder:
    """A plain object with a tensor, without a ``__dict__``."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def leak(x: Tensor, slope: float) -> Tensor:
    return F.leaky_relu(x, slope)


def helper(x: Tensor) -> Tensor:
    return leak(x, SLOPE)


class Model(nn.Module):
    """A module whose function depends on more than its parameters."""

    slope = 0.5

    def __init__(self, body: Callable[[Any, Tensor], Tensor], **attributes: Any) -> None:
        super().__init__()
        self.body = types.MethodType(body, self)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def set_global(name: str, value: Any) -> Callable[[Any], None]:
    return lambda model: globals().__setitem__(name, value)


def replace_by_same_bits(model: Any) -> None:
    # ids are used again: a new partial often lies where the old one was
    model.act = None
    model.act = functools.partial(leak, slope=0.9)


def patch_forward(model: Any) -> None:
    Model.forward = lambda self, x: 3 * x


def add_global_hook(model: Any) -> None:
    HANDLES.append(nn.modules.module.register_module_forward_hook(lambda module, args, out: 2 * out))


def change_closure(model: Any) -> None:
    model.cell.cell_contents = 0.9


def make_closure() -> tuple[Callable[[Any, Tensor], Tensor], Any]:
    slope = 0.5

    def body(self: Any, x: Tensor) -> Tensor:
        return F.leaky_relu(x, slope)

    return body, body.__closure__[0]


CLOSURE, CELL = make_closure()
HANDLES: list[Any] = []


def leak_cfg(self: Any, x: Tensor) -> Tensor:
    return F.leaky_relu(x, self.cfg.slope)


def call_act(self: Any, x: Tensor) -> Tensor:
    return self.act(x)


CASES: dict[str, tuple[Callable[[], Model], Callable[[Any], Any]]] = {
    "namespace changed": (
        lambda: Model(leak_cfg, cfg=types.SimpleNamespace(slope=0.5)),
        lambda m: setattr(m.cfg, "slope", 0.9),
    ),
    "namespace replaced": (
        lambda: Model(leak_cfg, cfg=types.SimpleNamespace(slope=0.5)),
        lambda m: setattr(m, "cfg", types.SimpleNamespace(slope=0.9)),
    ),
    "dataclass changed": (lambda: Model(leak_cfg, cfg=Settings()), lambda m: setattr(m.cfg, "slope", 0.9)),
    "dataclass replaced": (lambda: Model(leak_cfg, cfg=Settings()), lambda m: setattr(m, "cfg", Settings(0.9))),
    "deep in containers": (
        lambda: Model(lambda self, x: leak(x, self.a[0]["b"][1][0].slope), a=[{"b": (0, [Settings()])}]),
        lambda m: setattr(m.a[0]["b"][1][0], "slope", 0.9),
    ),
    "partial replaced": (lambda: Model(call_act, act=functools.partial(leak, slope=0.5)), replace_by_same_bits),
    "lambda replaced": (
        lambda: Model(call_act, act=lambda x: leak(x, 0.5)),
        lambda m: setattr(m, "act", lambda x: leak(x, 0.9)),
    ),
    "module in a list": (
        lambda: Model(lambda self, x: self.layers[0](x), layers=[nn.LeakyReLU(0.5)]),
        lambda m: setattr(m.layers[0], "negative_slope", 0.9),
    ),
    "list of modules changed": (
        lambda: Model(lambda self, x: self.layers[0](x), layers=[nn.LeakyReLU(0.5)]),
        lambda m: m.layers.__setitem__(0, nn.LeakyReLU(0.9)),
    ),
    "weights in a list": (
        lambda: Model(lambda self, x: self.layers[0](x), layers=[nn.Linear(3, 3)]),
        lambda m: m.layers[0].weight.data.mul_(2),
    ),
    "tensor of an object": (
        lambda: Model(lambda self, x: x * self.holder.tensor, holder=Holder(torch.ones(3))),
        lambda m: m.holder.tensor.mul_(2),
    ),
    "global tensor": (lambda: Model(lambda self, x: x * WEIGHTS), lambda m: WEIGHTS.mul_(2)),
    "global number": (lambda: Model(lambda self, x: F.leaky_relu(x, SLOPE)), set_global("SLOPE", 0.9)),
    "global number of a helper": (lambda: Model(lambda self, x: helper(x)), set_global("SLOPE", 0.9)),
    "global function": (lambda: Model(lambda self, x: helper(x)), set_global("leak", lambda x, slope: 3 * x)),
    "class attribute": (
        lambda: Model(lambda self, x: F.leaky_relu(x, self.slope)),
        lambda m: setattr(Model, "slope", 0.9),
    ),
    "forward of the class": (lambda: Model(lambda self, x: x), patch_forward),
    "forward of a torch class": (
        lambda: Model(call_act, act=nn.ReLU()),
        lambda m: setattr(nn.ReLU, "forward", lambda self, x: 3 * x),
    ),
    "function of torch": (lambda: Model(call_act, act=nn.ReLU()), lambda m: setattr(F, "relu", lambda x, inplace: -x)),
    "global hook": (lambda: Model(lambda self, x: x), add_global_hook),
    "closure": (lambda: Model(CLOSURE, cell=CELL), change_closure),
    "default of a function": (
        lambda: Model(call_act, act=lambda x, slope=0.5: F.leaky_relu(x, slope)),
        lambda m: setattr(m.act, "__defaults__", (0.9,)),
    ),
    "integer becomes a truth value": (
        lambda: Model(lambda self, x: 3 * x if self.flag is True else x, flag=1),
        lambda m: setattr(m, "flag", True),
    ),
}


def stack() -> nn.Sequential:
    """A model that is converted without torch.export."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Hardtanh(-9, 9), nn.ReLU()).eval()
    nn.init.eye_(model[0].weight)
    return model


STACK_CHANGES: dict[str, Callable[[Any], Any]] = {
    "weight": lambda m: m[0].weight.data.mul_(2),
    "setting": lambda m: setattr(m[1], "max_val", 0.1),
    "layer replaced": lambda m: m.__setitem__(1, nn.Hardtanh(-0.1, 0.1)),
    "layer added": lambda m: m.append(nn.Linear(3, 1)),
    "hook": lambda m: m[0].register_forward_hook(lambda module, args, out: 2 * out),
    "global hook": add_global_hook,
    "forward of a layer": lambda m: setattr(m[2], "forward", lambda x: 3 * x),
    "forward of a torch class": lambda m: setattr(nn.ReLU, "forward", lambda self, x: 3 * x),
    "function of torch": lambda m: setattr(F, "relu", lambda x, inplace: -x),
}


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch):
    """Undo changes of globals and classes after a test."""
    saved = SLOPE, WEIGHTS.clone(), leak, Model.forward, nn.ReLU.forward, F.relu
    yield
    globals().update(SLOPE=saved[0], leak=saved[2])
    WEIGHTS.copy_(saved[1])
    Model.slope, Model.forward, nn.ReLU.forward, F.relu = 0.5, saved[3], saved[4], saved[5]
    CELL.cell_contents = 0.5
    while HANDLES:
        HANDLES.pop().remove()


def assert_answers_for(line: xl.Restriction, model: nn.Module) -> None:
    with torch.no_grad():
        assert torch.allclose(line.values.float(), model(line.points.float()), atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_two_calls_after_a_change_answer_for_the_changed_module(case, restored):
    make, change = CASES[case]
    model = make().eval()
    before = xl.restrict(model, START, END)
    assert_answers_for(before, model)
    change(model)
    for _ in range(2):
        after = xl.restrict(model, START, END)
        assert_answers_for(after, model)
    assert not torch.equal(before.at(1.0), after.at(1.0))


@pytest.mark.parametrize("change", STACK_CHANGES)
def test_a_change_of_a_plain_stack_is_answered(change, restored):
    model = stack()
    before = xl.restrict(model, START, END)
    assert_answers_for(before, model)
    STACK_CHANGES[change](model)
    after = xl.restrict(model, START, END)
    assert_answers_for(after, model)
    assert not torch.equal(before.at(1.0), after.at(1.0))


@pytest.mark.parametrize(
    "case", ["namespace changed", "dataclass changed", "partial replaced", "global number", "closure"]
)
def test_a_module_of_readable_objects_is_captured_once(case, monkeypatch):
    captures: list[nn.Module] = []
    capture_module = networks.capture_module
    monkeypatch.setattr(
        networks, "capture_module", lambda module, *rest: captures.append(module) or capture_module(module, *rest)
    )
    model = CASES[case][0]().eval()
    for _ in range(3):
        xl.restrict(model, START, END)
    assert len(captures) == 1


class Unreadable(nn.Module):
    """A module with an iterator, whose state Python does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = iter([0.5] * 100)
        self.slope = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.slope)


def test_a_module_with_an_unreadable_object_is_captured_every_time(monkeypatch):
    captures: list[nn.Module] = []
    capture_module = networks.capture_module
    monkeypatch.setattr(
        networks, "capture_module", lambda module, *rest: captures.append(module) or capture_module(module, *rest)
    )
    model = Unreadable().eval()
    assert not fingerprint_module(model).is_complete
    for _ in range(2):
        assert_answers_for(xl.restrict(model, START, END), model)
    assert len(captures) == 2


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.1)),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), nn.PReLU()),
        nn.RNN(3, 2, nonlinearity="relu"),
        nn.ModuleDict({"a": nn.LeakyReLU()}),
    ],
    ids=["cnn", "parametrized", "rnn", "dict"],
)
def test_modules_of_torch_are_readable(model):
    one, two = fingerprint_module(model), fingerprint_module(model)
    assert one.is_complete
    assert one.proves_unchanged(two)


def test_a_module_that_refers_to_itself_is_readable():
    model = Model(lambda self, x: torch.relu(x))
    model.holder = Settings()
    model.holder.slope = [model]  # type: ignore[assignment]
    assert fingerprint_module(model).proves_unchanged(fingerprint_module(model))


def test_a_default_dtype_is_part_of_the_fingerprint():
    model = Model(lambda self, x: x * torch.tensor([0.1, 0.2, 0.3]).to(x.dtype))
    before = fingerprint_module(model)
    torch.set_default_dtype(torch.float64)
    try:
        assert not before.proves_unchanged(fingerprint_module(model))
    finally:
        torch.set_default_dtype(torch.float32)

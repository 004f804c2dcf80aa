"""Where a module's function changes, its fingerprint does not prove that it is unchanged."""

from __future__ import annotations

import copy
import decimal
import enum
import functools
import logging
import operator
import random
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exactline.network.fingerprint import fingerprint_module
from tests.network.function_module import FunctionModule

POINT = torch.tensor([[-1.0, 2.0, 0.5]])
SETTINGS = types.ModuleType("settings_of_a_user")
RANDOM = random.SystemRandom()
LOGGER = logging.getLogger("a logger of a user")


class Settings:
    """A plain object."""

    def __init__(self, slope: float = 0.5) -> None:
        self.slope = slope

    def __str__(self) -> str:
        return "0.5"

    def __deepcopy__(self, memo: Any) -> Settings:
        return self


class Choice(enum.Enum):
    """An enumeration."""

    FIRST = "first"


class Holder(nn.Module):
    """A module with one attribute, and one parameter."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], held: Any = None) -> None:
        super().__init__()
        self.function, self.held = function, held
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def read_slope(owner: Any) -> float:
    return owner.slope


def make_partial() -> Any:
    function = functools.partial(F.leaky_relu)
    function.slope = 0.5  # type: ignore[attr-defined]
    return function


def leak(x: Tensor, slope: float) -> Tensor:
    return F.leaky_relu(x, slope)


def set_slope(owner: Any) -> Callable[[Any], None]:
    return lambda model: setattr(owner, "slope", 0.9)


def set_held_slope(model: Any) -> None:
    model.held.slope = 0.9


# what a module computes, and what changes that
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Any]]] = {
    "a Python module passed to a function": (
        lambda: FunctionModule(lambda x: leak(x, read_slope(SETTINGS))),
        set_slope(SETTINGS),
    ),
    "an attribute by a computed name": (
        lambda: FunctionModule(lambda x: leak(x, operator.attrgetter("slope")(SETTINGS))),
        set_slope(SETTINGS),
    ),
    "a function's global variables": (
        lambda: FunctionModule(lambda x: leak(x, leak.__globals__["SETTINGS"].slope)),
        set_slope(SETTINGS),
    ),
    "a text": (
        lambda: Holder(lambda self, x: leak(x, float(f"{self.held}")), Settings()),
        lambda m: setattr(Settings, "__str__", lambda self: "0.9"),
    ),
    "a copy": (
        lambda: Holder(lambda self, x: leak(x, copy.deepcopy(self.held).slope), Settings()),
        lambda m: setattr(Settings, "__deepcopy__", lambda self, memo: Settings(0.9)),
    ),
    "a constructor": (
        lambda: Holder(lambda self, x: leak(x, type(self.held)().slope), Settings()),
        lambda m: setattr(Settings, "__init__", lambda self: setattr(self, "slope", 0.9)),
    ),
    "an attribute of a partial": (
        lambda: Holder(lambda self, x: leak(x, self.held.slope), make_partial()),
        set_held_slope,
    ),
    "an attribute of a member of an enumeration": (
        lambda: Holder(lambda self, x: leak(x, getattr(self.held, "slope", 0.5)), Choice.FIRST),
        set_held_slope,
    ),
    "an attribute of a logger": (
        lambda: FunctionModule(lambda x: leak(x, getattr(LOGGER, "slope", 0.5))),
        set_slope(LOGGER),
    ),
    "the level of a logger": (
        lambda: FunctionModule(lambda x: x if LOGGER.isEnabledFor(5) else torch.relu(x)),
        lambda m: LOGGER.setLevel(1),
    ),
    "the precision of decimal numbers": (
        lambda: FunctionModule(lambda x: leak(x, float(decimal.Decimal(2) / 3))),
        lambda m: setattr(decimal.getcontext(), "prec", 1),
    ),
    "a setting of torch": (
        lambda: FunctionModule(lambda x: x if torch.are_deterministic_algorithms_enabled() else torch.relu(x)),
        lambda m: torch.use_deterministic_algorithms(True),
    ),
    "a setting of a backend of torch": (
        lambda: FunctionModule(lambda x: x if torch.backends.mkldnn.deterministic else torch.relu(x)),
        lambda m: setattr(torch.backends.mkldnn, "deterministic", True),
    ),
    "a gradient": (
        lambda: Holder(lambda self, x: x if self.weight.grad is None else torch.relu(x)),
        lambda m: setattr(m.weight, "grad", torch.ones(())),
    ),
    "a function of torch that a layer calls": (
        nn.ReLU,
        lambda m: setattr(torch, "relu", lambda x: 3 * x),
    ),
    "a method of tensors": (
        lambda: FunctionModule(lambda x: x.leak_of_a_user()),
        set_slope(SETTINGS),
    ),
    "a list of all modules": (
        lambda: Holder(lambda self, x: leak(x, self.slopes_of_a_user[0])),
        lambda m: nn.Module.slopes_of_a_user.__setitem__(0, 0.9),  # type: ignore[attr-defined]
    ),
}


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch):
    """Undo changes of modules, classes and settings after a test."""
    monkeypatch.setattr(SETTINGS, "slope", 0.5, raising=False)
    monkeypatch.setitem(sys.modules, SETTINGS.__name__, SETTINGS)
    monkeypatch.setattr(Tensor, "leak_of_a_user", lambda self: leak(self, SETTINGS.slope), raising=False)
    monkeypatch.setattr(nn.Module, "slopes_of_a_user", [0.5], raising=False)
    for owner, name in ((torch, "relu"), *((Settings, f"__{name}__") for name in ("str", "deepcopy", "init"))):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    precision, level, deterministic = decimal.getcontext().prec, LOGGER.level, torch.backends.mkldnn.deterministic
    yield
    decimal.getcontext().prec = precision
    LOGGER.setLevel(level)
    torch.use_deterministic_algorithms(False)
    torch.backends.mkldnn.deterministic = deterministic
    for owner in (LOGGER, Choice.FIRST):
        vars(owner).pop("slope", None)


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_noticed(case: str, restored: None):
    make, change = CASES[case]
    model = make().eval()
    fingerprint, values = fingerprint_module(model), model(POINT)
    change(model)
    assert not torch.equal(values, model(POINT))
    assert not fingerprint.proves_unchanged(fingerprint_module(model))


@pytest.mark.parametrize("write", [np.save, np.savetxt, torch.save], ids=["load", "loadtxt", "torch"])
def test_a_file_that_forward_reads_is_never_taken_as_unchanged(write: Callable[..., None], tmp_path: Path):
    path = tmp_path / "slope.npy"
    load: Any = {np.save: np.load, np.savetxt: np.loadtxt, torch.save: torch.load}[write]
    torch_save = write is torch.save
    write(*((torch.tensor([0.5]), path) if torch_save else (path, np.array([0.5]))))
    model = FunctionModule(lambda x: leak(x, float(load(path).reshape(-1)[0])))
    assert model(POINT)[0, 0] == -0.5
    assert not fingerprint_module(model).is_complete


def test_objects_that_fail_when_looked_at_are_never_taken_as_unchanged():
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise ValueError(name)

    model = FunctionModule(torch.relu)
    model.held = [Settings()]  # type: ignore[assignment]
    assert fingerprint_module(model).is_complete
    model.held.append(Hostile())  # type: ignore[operator, union-attr]
    assert not fingerprint_module(model).is_complete


def test_a_generator_without_state_is_never_taken_as_unchanged():
    model = FunctionModule(lambda x: x * RANDOM.random())
    assert not fingerprint_module(model).is_complete

"""Whatever forward changes while it is traced is restored: the user's module stays as it was."""

from __future__ import annotations

import collections
import copy
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.network import forward_check
from exactline.network.preserve import preserve_state

START, END = torch.tensor([-1.0, 2.0, 0.5]), torch.tensor([2.0, -1.5, 1.0])
SEEN: list[Any] = []
SETTINGS: Any = types.ModuleType("settings")


class Slots:
    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = None


class Storing(nn.Module):
    """Stores its activations everywhere it can."""

    latest = None

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.last: Any = None
        self.history: list[Any] = []
        self.by_name: dict[str, Any] = {"first": None}
        self.recent: collections.deque[Any] = collections.deque(maxlen=2)
        self.holder = Slots()
        self.total = torch.zeros(3)
        self.counts = np.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        self.last = torch.relu(self.layer(x))
        self.history.append(self.last)
        self.by_name["first"] = self.by_name["second"] = self.last
        self.recent.append(self.last)
        self.holder.last = self.last
        self.new_attribute = self.last
        self.layer.inner_attribute = self.last
        Storing.latest = self.last
        self.counts += 1
        SEEN.append(self.last)
        return 2 * self.last


def assert_unchanged(model: Storing) -> None:
    assert model.last is None
    assert model.history == []
    assert model.by_name == {"first": None}
    assert not model.recent
    assert model.holder.last is None
    assert not hasattr(model, "new_attribute")
    assert not hasattr(model.layer, "inner_attribute")
    assert Storing.latest is None
    assert model.counts.tolist() == [0.0, 0.0]
    assert model.total.tolist() == [0.0, 0.0, 0.0]
    assert SEEN == []


def test_a_module_that_stores_activations_is_left_unchanged():
    model = Storing().eval()
    first = xl.restrict(model, START, END)
    assert_unchanged(model)
    copied = copy.deepcopy(model)
    second = xl.restrict(model, START, END)
    assert_unchanged(model)
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.values, xl.restrict(copied, START, END).values)
    first.check(samples=3)
    assert_unchanged(model)


def test_a_module_that_stores_activations_is_left_unchanged_by_a_refusal():
    class Refused(Storing):
        def forward(self, x: Tensor) -> Tensor:
            return torch.exp(super().forward(x))

    model = Refused().eval()
    with pytest.raises(xl.UnsupportedError):
        xl.restrict(model, START, END)
    assert_unchanged(model)


def test_hooks_that_store_activations_leave_nothing_behind():
    kept: dict[str, Any] = {}
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    model[1].register_forward_hook(lambda module, args, out: kept.update(last=out))
    xl.restrict(model, START, END)
    assert kept == {}


def test_tensors_and_arrays_changed_in_place_are_restored():
    model = Storing()
    with preserve_state(model):
        model.total += 1
        model.counts[0] = 5
        model.history.extend([1, 2])
    assert_unchanged(model)


def test_a_module_changed_between_calls_keeps_the_change():
    model = Storing().eval()
    xl.restrict(model, START, END)
    with torch.no_grad():
        model(START[None])
    assert model.last is not None
    stored = model.last
    xl.restrict(model, START, END)
    assert model.last is stored
    assert len(model.history) == 1
    SEEN.clear()
    Storing.latest = None


def test_what_forward_changes_of_a_weight_is_restored():
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.layer.weight.requires_grad_(False)
            self.layer.bias.grad = torch.ones(3)
            self.layer.bias.register_hook(torch.neg)
            self.layer.weight.data = torch.zeros(3, 3)
            torch.set_default_dtype(torch.float64)
            SETTINGS.last = torch.relu(x)
            return torch.relu(x)

    model = Changing().eval()
    weight, memory = model.layer.weight.detach().clone(), model.layer.weight.data_ptr()
    try:
        xl.restrict(model, START, END)
        assert torch.get_default_dtype() == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert not hasattr(SETTINGS, "last")
    assert model.layer.weight.requires_grad
    assert model.layer.bias.grad is None
    assert not model.layer.bias._backward_hooks
    assert torch.equal(model.layer.weight, weight)
    assert model.layer.weight.data_ptr() == memory


def test_a_weight_whose_data_forward_replaces_is_restored_where_forward_runs_without_data(monkeypatch):
    class Replacing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.layer.weight.data = torch.zeros(3, 3)
            return torch.relu(x)

    monkeypatch.setattr(forward_check, "MAX_RUN_WEIGHTS", -1)
    model = Replacing().eval()
    weight = model.layer.weight.detach().clone()
    assert xl.restrict(model, START, END).values[-1].tolist() == [2.0, 0.0, 1.0]
    assert torch.equal(model.layer.weight, weight)

"""forward must be one function of its input: the same every time, and for one point as for several."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import exactline as xl
from exactline.network import forward_check
from exactline.network.call_recorder import CallRecorder
from tests.network.function_module import FunctionModule

START, END = torch.tensor([-1.0, 2.0, 0.5]), torch.tensor([2.0, -1.5, 1.0])
GENERATOR = np.random.default_rng(0)
SYSTEM = random.SystemRandom()
COUNT = 0


class Counter(nn.Module):
    """Counts its calls, and computes with the count or not."""

    def __init__(self, is_used: bool, step: int = 1) -> None:
        super().__init__()
        self.calls, self.is_used, self.step = 1, is_used, step

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.step
        return torch.relu(x) * (self.calls if self.is_used else 2)


def count_globally(x: Tensor) -> Tensor:
    global COUNT
    COUNT += 1
    return x * COUNT


def branch_on_one_point(x: Tensor) -> Tensor:
    return 2 * x if x.shape[0] == 1 else torch.relu(x)


def scale_one_point(x: Tensor) -> Tensor:
    return x * (1.0 if x.shape[0] > 1 else 3.0)


NOT_REPEATABLE = {
    "numpy": lambda x: x * np.random.rand(),
    "numpy as a tensor": lambda x: x + torch.tensor(np.random.rand(3), dtype=x.dtype),
    "numpy as memory": lambda x: x + torch.from_numpy(np.random.rand(3)).to(x.dtype),
    "numpy generator": lambda x: x * GENERATOR.random(),
    "python": lambda x: x * random.random(),
    "system": lambda x: x * SYSTEM.random(),
    "rarely": lambda x: torch.relu(x) if random.random() < 0.8 else x,
    "clock": lambda x: x * time.perf_counter(),
    "global counter": count_globally,
}


@pytest.mark.parametrize("name", NOT_REPEATABLE)
def test_a_forward_that_differs_every_time_is_refused(name):
    states = np.random.get_state()[1].copy(), random.getstate(), GENERATOR.bit_generator.state
    with pytest.raises(xl.CaptureError, match="something else each time"):
        xl.restrict(FunctionModule(NOT_REPEATABLE[name]), START, END)
    assert COUNT == 0
    assert (np.random.get_state()[1] == states[0]).all()
    assert random.getstate() == states[1]
    assert GENERATOR.bit_generator.state == states[2]


@pytest.mark.parametrize("step", [1, 2])
def test_a_counter_that_the_output_depends_on_is_refused(step):
    model = Counter(True, step)
    with pytest.raises(xl.CaptureError, match="something else each time"):
        xl.restrict(model, START, END)
    assert model.calls == 1


class Alternating(nn.Module):
    """Takes turns between two results of the same torch calls."""

    def __init__(self, function: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.function, self.calls = function, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.function(x, self.calls % 2)


@pytest.mark.parametrize("max_weights", [forward_check.MAX_RUN_WEIGHTS, -1], ids=["with data", "without data"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, turn: torch.relu(x)[:, slice(turn, turn + 1)],
        lambda x, turn: (torch.relu(x), -x)[turn],
        lambda x, turn: torch.relu((x + 1, x + 2)[turn]),
    ],
    ids=["slice", "output", "argument"],
)
def test_a_forward_that_takes_turns_is_refused(function, max_weights, monkeypatch):
    monkeypatch.setattr(forward_check, "MAX_RUN_WEIGHTS", max_weights)
    with pytest.raises(xl.CaptureError, match="something else each time"):
        xl.restrict(Alternating(function), START, END)


class Normalized(nn.Module):
    """BatchNorm with fixed statistics, called by position and by keyword, and turns of another number."""

    def __init__(self, offsets: tuple[float, float]) -> None:
        super().__init__()
        self.norm, self.offsets, self.calls = nn.BatchNorm1d(3), offsets, 0
        self.norm.running_mean, self.norm.running_var = torch.tensor([1.0, -1.0, 0.0]), torch.tensor([4.0, 1.0, 0.25])

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        norm = self.norm
        x = torch.relu(nn.functional.batch_norm(x, norm.running_mean, running_var=norm.running_var, eps=0.0))
        return norm(x) + self.offsets[self.calls % 2]


def test_batch_norm_is_compared_without_data(monkeypatch):
    monkeypatch.setattr(forward_check, "MAX_RUN_WEIGHTS", -1)
    model = Normalized((2.0, 2.0)).double().eval()
    line = xl.restrict(model, START, END)
    assert (line.values - model(line.points).detach()).abs().max() < 1e-14
    with pytest.raises(xl.CaptureError, match="something else each time"):
        xl.restrict(Normalized((2.0, 3.0)).eval(), START, END)


def test_batch_norm_without_data_has_the_shape_and_type_that_torch_finds():
    mean, variance = torch.zeros(3), torch.ones(3)
    for dtype in (torch.float32, torch.float64):
        with forward_check.FakeTensorMode(allow_non_fake_inputs=True):
            x = torch.empty(2, 3, 4, dtype=dtype)
            expected = nn.functional.batch_norm(x, mean.to(dtype), variance.to(dtype))
            with CallRecorder() as recorder:
                found = nn.functional.batch_norm(x, mean.to(dtype), variance.to(dtype))
        assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())
        assert [call.name for call in recorder.calls if call.name == "batch_norm"] == ["batch_norm"]


def test_a_counter_that_the_output_does_not_depend_on_is_kept():
    model = Counter(False)
    assert xl.restrict(model, START, END).values[-1].tolist() == [4.0, 0.0, 2.0]
    assert model.calls == 1


def test_a_cache_that_the_first_forward_fills_is_no_difference():
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.scale is None:
                self.scale = torch.arange(3.0) + 1
            return torch.relu(x * self.scale)

    model = Cache()
    assert xl.restrict(model, START, END).values[-1].tolist() == [2.0, 0.0, 3.0]
    assert model.scale is None


@pytest.mark.parametrize("function", [branch_on_one_point, scale_one_point])
def test_a_forward_that_treats_one_point_differently_is_refused(function):
    with pytest.raises(xl.CaptureError, match="a batch of one point"):
        xl.restrict(FunctionModule(function), START, END)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clamp(min=0) if x.shape[0] == 1 else torch.relu(x),
        lambda x: torch.relu(x.view(x.shape[0], 1, 3).expand(x.shape[0], 2, 3)).reshape(x.shape[0], -1),
        lambda x: torch.relu(x).squeeze(),
    ],
    ids=["shorter way", "sizes", "squeeze"],
)
def test_the_same_function_in_other_words_is_accepted(function):
    line = xl.restrict(FunctionModule(function), START, END)
    assert line.values[-1].flatten()[:3].tolist() == [2.0, 0.0, 1.0]


def test_a_forward_that_fails_for_one_point_is_accepted():
    def function(x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            raise ValueError("too few points")
        return torch.relu(x)

    assert xl.restrict(FunctionModule(function), START, END).values[-1].tolist() == [2.0, 0.0, 1.0]


@pytest.mark.parametrize("bound", [2, 8])
def test_a_branch_on_other_batch_sizes_is_refused(bound):
    with pytest.raises(xl.CaptureError):
        xl.restrict(FunctionModule(lambda x: x * 2 if x.shape[0] == bound else x), START, END)
    with pytest.raises(xl.CaptureError):
        xl.restrict(FunctionModule(lambda x: x * 2 if x.shape[0] > bound else x), START, END)


def test_forward_prints_at_most_once(capsys):
    def function(x: Tensor) -> Tensor:
        print("called")
        return torch.relu(x)

    xl.restrict(FunctionModule(function), START, END)
    assert capsys.readouterr().out.count("called") <= 1


WHEN_CALLED = {
    "compiling": lambda x: torch.relu(x) if torch.compiler.is_compiling() else F.hardsigmoid(x),
    "gradients": lambda x: F.hardsigmoid(x) if torch.is_grad_enabled() else torch.relu(x),
    "type": lambda x: F.hardsigmoid(x) if type(x) is Tensor else torch.relu(x),
}


@pytest.mark.parametrize("name", WHEN_CALLED)
def test_a_forward_that_does_something_else_while_it_is_traced_is_refused(name):
    with pytest.raises(xl.CaptureError, match="when it is called than when"):
        xl.restrict(FunctionModule(WHEN_CALLED[name]), START, END)


@pytest.mark.parametrize("max_weights", [forward_check.MAX_RUN_WEIGHTS, -1], ids=["with data", "without data"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.relu(x) if torch.compiler.is_compiling() else torch.abs(x),
        lambda x: torch.abs(x) if type(x) is Tensor else torch.relu(x),
    ],
    ids=["compiling", "type"],
)
def test_a_forward_that_would_do_something_else_while_it_is_traced_is_read_as_it_is_called(
    function, max_weights, monkeypatch
):
    monkeypatch.setattr(forward_check, "MAX_RUN_WEIGHTS", max_weights)
    line = xl.restrict(FunctionModule(function), START, END)
    assert torch.equal(line.values, line.points.abs())


def test_a_forward_that_loses_much_to_rounding_is_accepted():
    """In single precision 2**25 + 1 is 2**25, so the module and the network differ by the whole value."""
    line = xl.restrict(FunctionModule(lambda x: (torch.relu(x) + 2.0**25) - 2.0**25), START, END)
    assert line.values[-1].tolist() == [2.0, 0.0, 1.0]


def test_random_numbers_that_forward_does_not_use_are_accepted():
    def function(x: Tensor) -> Tensor:
        return x if random.random() < 0 else torch.relu(x)

    assert xl.restrict(FunctionModule(function), START, END).values[-1].tolist() == [2.0, 0.0, 1.0]

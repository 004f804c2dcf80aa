"""Unusual graphs: shared modules, aliases, in-place operators, and unusual inputs and outputs."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import exactline as xl
from tests.oracle.families import Concat, Residual

from .truth import Function, assert_refused, assert_same_line, breaks, linear_layer, mlp, restrict_and_verify, vector

START, END = vector(-2.0, 1.5, 0.5), vector(2.5, -1.0, -3.0)


# -- shared modules, aliases and in-place operators -------------------------------------------------------------


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act, self.head = nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.act(self.layer(self.act(self.layer(x)))))


def test_a_module_used_twice_breaks_at_both_uses():
    line = restrict_and_verify(Twice().eval(), START * 3, END * 3)
    assert {origin.node for origin in line.origins[1:-1]} == {"relu", "relu_1"}


def test_until_a_module_used_twice_means_its_last_use():
    model = Twice().eval()
    line = xl.restrict(model, START, END, until="layer")
    with torch.no_grad():
        inner = model.layer(model.act(model.layer(START.float())))
    assert torch.allclose(line.values[0].float(), inner, atol=1e-5)


def test_shared_weights_are_one_tensor_read_twice():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    model[2].weight = model[0].weight
    restrict_and_verify(model, START, END)


def test_an_in_place_relu_after_a_residual_fork():
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            h = self.first(x)
            alias = h  # the in-place ReLU changes this tensor too
            return self.second(F.relu_(h)) + alias

    restrict_and_verify(Fork().eval(), START, END)
    block = Residual(nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3), nn.ReLU(inplace=True)))
    restrict_and_verify(
        nn.Sequential(nn.Linear(3, 3), block, nn.ReLU(inplace=True), nn.Linear(3, 1)).eval(), START, END
    )


def test_an_in_place_relu_on_the_input_does_not_change_the_callers_tensors():
    for dtype in (torch.float64, torch.float32):
        start, end = START.to(dtype), END.to(dtype)
        before = start.clone(), end.clone()
        line = xl.restrict(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2).to(dtype)).eval(), start, end)
        assert torch.equal(start, before[0])
        assert torch.equal(end, before[1])
        assert len(line) == 4
        line.check(samples=5)
        line.piece(0).affine()
        line.minimal()
        assert torch.equal(start, before[0])
        assert torch.equal(line.points[0], before[0].double())
        assert torch.equal(line.points[-1], before[1].double())


def test_a_residual_around_an_in_place_relu_on_the_input_matches_torch():
    # torch overwrites x first: the sum is 2 relu(x)
    model = Residual(nn.ReLU(inplace=True))
    line = xl.restrict(model, START, END)
    for row, x in zip(line.values, line.points, strict=True):
        assert torch.allclose(row, model(x.clone()[None])[0], atol=1e-14)


@pytest.mark.parametrize(
    "forward",
    [
        lambda h: (h[:, :2].relu_(), h)[1],  # writes through a slice
        lambda h: (h.view(-1, 3).relu_(), h)[1],
        lambda h: (h[:, 0].mul_(2), h.relu())[1],
        lambda h: (h.chunk(3, 1)[2].clamp_(-1, 1), h)[1],
    ],
    ids=["slice", "view", "column", "chunk"],
)
@pytest.mark.every(4)
def test_writing_to_a_view_changes_the_tensor_it_aliases(forward):
    layer = linear_layer(torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64))
    restrict_and_verify(nn.Sequential(layer, Function(forward)), START, END)


@pytest.mark.parametrize("forward", [lambda h: (h.t().relu_(), h)[1], lambda h: (h.unbind(1)[1].relu_(), h)[1]])
@pytest.mark.every(2)
def test_writing_to_an_unusual_view_is_exact_or_refused(forward):
    layer = linear_layer(torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64))
    try:
        restrict_and_verify(nn.Sequential(layer, Function(forward)), START, END)
    except xl.UnsupportedError as error:
        assert error.nodes  # noqa: PT017


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x,
        lambda x: torch.relu(x) + torch.relu(x),
        lambda x: torch.cat([x, x], 1).relu(),
        lambda x: torch.maximum(x, x),
        lambda x: torch.maximum(x, -x),
        lambda x: x - x,
        lambda x: torch.stack([x, -x], 1).amax(1),
    ],
    ids=["sum", "relus", "cat", "maximum", "abs", "nothing", "stack"],
)
def test_a_tensor_combined_with_itself(function):
    restrict_and_verify(Function(function), START, END)


def test_a_skip_across_a_pool_and_a_concat_of_different_break_sets():
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, x):
            return F.interpolate(F.max_pool2d(F.relu(self.conv(x)), 2), scale_factor=2) + x

    restrict_and_verify(Skip().eval(), torch.randn(1, 4, 4) * 2, torch.randn(1, 4, 4) * 2)
    branches = Concat(mlp(3, 6, 2), nn.Sequential(nn.Linear(3, 3), nn.Hardtanh()), nn.Identity())
    restrict_and_verify(nn.Sequential(branches, nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)).eval(), START, END)


def test_a_dead_branch_adds_no_breaks():
    class Dead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = mlp(3, 4, 2), mlp(3, 50, 2)

        def forward(self, x):
            self.unused(x)
            return self.used(x)

    model = Dead().eval()
    line = restrict_and_verify(model, START, END)
    assert_same_line(line, xl.restrict(model.used, START, END))
    assert line.units == {"relu": 4}


def test_the_identity_and_a_purely_affine_net_are_one_piece():
    assert breaks(restrict_and_verify(nn.Identity(), START, END)) == [0.0, 1.0]
    assert breaks(restrict_and_verify(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 5)), START, END)) == [0.0, 1.0]


# -- inputs and outputs -----------------------------------------------------------------------------------------


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, x, y):
        return torch.relu(self.left(x) + self.right(y))


def test_several_inputs_are_given_as_tuples():
    start, end = (START, vector(1.0, -1.0)), (END, vector(-2.0, 0.5))
    line = restrict_and_verify(Two().eval(), start, end)
    assert isinstance(line.points, tuple)
    assert [tuple(p.shape[1:]) for p in line.points] == [(3,), (2,)]
    assert_refused(xl.ExactlineError, xl.restrict, Two().eval(), START, END)
    assert_refused(xl.LineError, xl.restrict, Two().eval(), start, END)


def test_an_unused_input_is_part_of_the_points():
    model = Function(lambda x, y: torch.relu(x))
    line = restrict_and_verify(model, (START, vector(1.0)), (END, vector(5.0)))
    assert len(line) == 4
    assert line.points[1].shape == (5, 1)


def test_one_input_fixed_and_the_other_moving():
    y = vector(0.5, 0.25)
    restrict_and_verify(Two().eval(), (START, y), (END, y))


def test_two_outputs_come_back_as_a_tuple():
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 4)

        def forward(self, x):
            h = self.first(x)
            return torch.relu(h), h.amax(1)

    line = restrict_and_verify(Pair().eval(), START, END)
    assert isinstance(line.values, tuple)
    assert [v.shape[1:] for v in line.values] == [(4,), ()]
    assert isinstance(line.at([0.3]), tuple)
    A, b = line.piece(0).affine()
    assert [a.shape for a in A] == [(4, 3), (3,)]
    assert [c.shape for c in b] == [(4,), ()]


def test_an_output_without_dims_can_be_evaluated_at_one_alpha():
    for model in (Function(lambda x: x.amax(1)), Function(lambda x: torch.sigmoid(x.sum(1)))):
        line = xl.restrict(model, START, END)
        assert line.values.shape == (len(line) + 1,)
        assert line.at([0.0, 1.0]).tolist() == line.values[[0, -1]].tolist()
        assert line.at(1.0).shape == ()
        assert float(line.at(1.0)) == float(line.values[-1])
        assert line.at(1.0, tail=True).shape == ()
        A, b = line.piece(0).affine()
        assert A.shape == (3,)
        assert b.shape == ()


def test_the_same_output_twice_and_an_output_that_is_the_input():
    line = restrict_and_verify(Function(lambda x: (torch.relu(x), torch.relu(x), x)), START, END)
    assert len(line.values) == 3
    same = Function(lambda x: (lambda y: (y, y))(torch.relu(x)))
    assert torch.equal(*xl.restrict(same, START, END).values)


def test_a_list_output_and_a_tuple_of_one_give_tuples():
    assert isinstance(xl.restrict(Function(lambda x: [torch.relu(x)]), START, END).values, tuple)
    assert isinstance(xl.restrict(Function(lambda x: (torch.relu(x),)), START, END).values, tuple)


class Answer(NamedTuple):
    logits: torch.Tensor
    hidden: torch.Tensor


@pytest.mark.parametrize(
    "function",
    [
        lambda x: {"logits": torch.relu(x), "hidden": x},
        lambda x: {"logits": torch.relu(x)},
        lambda x: (torch.relu(x), {"hidden": x}),
        lambda x: None,
        lambda x: 3.0,
        lambda x: (torch.relu(x), None),
        lambda x: (torch.relu(x), 5),
        lambda x: "text",
        lambda x: x.sum(),
        lambda x: torch.ones(3),
        lambda x: torch.ones(len(x), 3),
    ],
    ids=[
        "dict",
        "dict1",
        "nested-dict",
        "none",
        "number",
        "with-none",
        "with-int",
        "text",
        "scalar",
        "constant",
        "batch-constant",
    ],
)
@pytest.mark.every(3)
def test_unsupported_outputs_are_refused_with_a_hint(function):
    assert_refused(xl.CaptureError, xl.restrict, Function(function), START, END)


def test_the_refusal_of_a_dict_output_names_its_keys():
    error = assert_refused(xl.CaptureError, xl.restrict, Function(lambda x: {"logits": x.relu()}), START, END)
    assert "logits" in error.hint


def test_a_named_tuple_is_a_tuple_or_refused():
    model = Function(lambda x: Answer(torch.relu(x), x))
    try:
        line = xl.restrict(model, START, END)
    except xl.CaptureError as error:
        assert error.hint  # noqa: PT017
    else:
        assert [tuple(v.shape[1:]) for v in line.values] == [(3,), (3,)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x[x > 0],
        lambda x: x * float(x.amax()),
        lambda x: torch.relu(x)[:, : int(x[0, 0])],
        lambda x: torch.tensor(x.detach().numpy() + 1.0),
        lambda x: next(x for _ in range(int(x.sum().item()))),
    ],
    ids=["branch", "mask", "item", "slice", "numpy", "loop"],
)
def test_data_dependent_control_flow_is_refused(function):
    assert_refused(xl.CaptureError, xl.restrict, Function(function), START, END)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - x.mean(0),
        lambda x: x - x.mean(0, keepdim=True),
        lambda x: x.view(1, -1),
        lambda x: x.flip(0),
        lambda x: x.roll(1, 0),
        lambda x: x.cumsum(0),
        lambda x: x.sort(0).values,
        lambda x: x.amax(0, keepdim=True) + x,
        lambda x: x[:1] + x,
        lambda x: x / x.shape[0],
        lambda x: x.t(),
        lambda x: torch.cat([x, x]),
        lambda x: torch.cat([x[1:], x[:1]]),
        lambda x: x @ x.t() @ x,
        lambda x: x + torch.arange(x.shape[0])[:, None],
        lambda x: F.batch_norm(x, None, None, training=True),
    ],
    ids=[
        "mean",
        "keep",
        "view",
        "flip",
        "roll",
        "cumsum",
        "sort",
        "amax",
        "first",
        "size",
        "t",
        "cat",
        "rotate",
        "gram",
        "arange",
        "norm",
    ],
)
@pytest.mark.every(3)
def test_nodes_that_mix_the_batch_are_refused(function):
    assert_refused(xl.CaptureError, xl.restrict, Function(function), START, END)


def test_a_model_without_input_or_an_object_that_is_not_a_model_is_refused():
    assert_refused(xl.ExactlineError, xl.restrict, Function(lambda: torch.ones(3)), START, END)
    for thing in (None, 3, "model.pt", [nn.ReLU()], {"a": 1}, nn.ReLU):
        assert_refused(xl.ExactlineError, xl.restrict, thing, START, END)


def test_a_random_forward_is_refused():
    for function in (lambda x: x + torch.randn_like(x), lambda x: F.dropout(x, 0.5, training=True), torch.bernoulli):
        assert_refused(xl.CaptureError, xl.restrict, Function(function), START, END)

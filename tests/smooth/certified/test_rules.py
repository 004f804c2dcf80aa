"""Every rule encloses its operator: compared with ball arithmetic on random discs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flint import acb
from torch.fx import Graph, Node

from exactline.smooth.certified.rules import RULES
from exactline.smooth.certified.shape_rules import SHAPE_RULES
from exactline.smooth.certified.taylor_model import TaylorModel
from tests.smooth.certified import balls
from tests.smooth.certified.balls import RandomModel, contains, points_of_the_disc, to_balls

SHAPE = (3, 4)
WEIGHT = torch.randn(4, 5, dtype=torch.float64)
LEFT = torch.randn(5, 3, dtype=torch.float64)
VECTOR = torch.rand(4, dtype=torch.float64) + 0.5


def mean(x: np.ndarray, axis: int, keepdims: bool = True) -> np.ndarray:
    return x.sum(axis, keepdims=keepdims) / x.shape[axis]


def softmax(x: np.ndarray) -> np.ndarray:
    return balls.exp(x) / balls.exp(x).sum(-1, keepdims=True)


def layer_norm(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    centred = x - mean(x, -1)
    scale = 1 / balls.sqrt(mean(centred * centred, -1) + acb(1e-5))
    return centred * scale * to_balls(VECTOR) + to_balls(VECTOR), mean(x, -1), scale


def batch_norm(x: np.ndarray) -> np.ndarray:  # (batch, channels)
    scale = to_balls(VECTOR) / balls.sqrt(to_balls(VECTOR) + acb(1e-5))
    return (x - to_balls(VECTOR)) * scale + to_balls(VECTOR)


def tanh_gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + balls.tanh(acb(2 / acb.pi()).sqrt() * (x + acb("0.044715") * x**3)))


def tanh_gelu_derivative(x: np.ndarray) -> np.ndarray:
    rate, cube = acb(2 / acb.pi()).sqrt(), acb("0.044715")
    t = balls.tanh(rate * (x + cube * x**3))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * rate * (1 + 3 * cube * x * x)


def convolve(x: np.ndarray) -> np.ndarray:  # (1, 2, 5)
    kernel = to_balls(KERNEL)
    padded = np.concatenate([np.full((1, 2, 1), acb(0)), x, np.full((1, 2, 1), acb(0))], axis=2)
    out = [[(padded[0, :, i : i + 3] * kernel[c]).sum() + acb(0.5) for i in range(0, 5, 2)] for c in range(3)]
    return np.array([out])


def convolve_back(grad: np.ndarray) -> np.ndarray:  # (1, 3, 3)
    padded = np.full((1, 2, 7), acb(0))
    for i in range(3):
        padded[0, :, 2 * i : 2 * i + 3] += (grad[0, :, i, None, None] * to_balls(KERNEL)).sum(0)
    return padded[:, :, 1:6]


KERNEL = torch.randn(3, 2, 3, dtype=torch.float64)
BIAS = torch.full((3,), 0.5, dtype=torch.float64)
POSITIVE = {"center": 3.0, "spread": 0.2}

# operator, its arguments after the models, the same function on arrays of balls, and the models
SAMPLES: list[tuple[str, tuple[Any, ...], Callable[..., Any], list[dict[str, Any]]]] = [
    ("add", (), lambda x, y: x + y, [{}, {"order": 3}]),
    ("add", (VECTOR,), lambda x: x + to_balls(VECTOR), [{}]),
    ("sub", (), lambda x, y: x - y, [{}, {"shape": (4,)}]),
    ("rsub", (1.0,), lambda x: 1 - x, [{}]),
    ("neg", (), lambda x: -x, [{}]),
    ("mul", (), lambda x, y: x * y, [{}, {}]),
    ("mul", (), lambda x, y: x * y, [{}, {"shape": (3, 1), "order": 1}]),
    ("mul", (0.3,), lambda x: x * acb(0.3), [{}]),
    ("div", (), lambda x, y: x / y, [{}, POSITIVE]),
    ("div", (3.0,), lambda x: x / 3, [{}]),
    ("pow", (3,), lambda x: x**3, [{}]),
    ("pow", (-2.0,), lambda x: 1 / x**2, [POSITIVE]),
    ("pow", (0.5,), balls.sqrt, [{"center": 9.0, "spread": 0.2}]),
    ("pow", (1.3,), lambda x: balls.exp(balls.log(x) * acb(1.3)), [{"center": 9.0, "spread": 0.2}]),
    ("mm", (WEIGHT,), lambda x: x @ to_balls(WEIGHT), [{}]),
    ("mm", (), lambda x, y: x @ y, [{}, {"shape": (4, 2)}]),
    ("bmm", (), lambda x, y: x @ y, [{"shape": (2, 3, 4)}, {"shape": (2, 4, 2), "axis": -2}]),
    ("matmul", (), lambda x, y: x @ y, [{"order": 1}, {"shape": (4, 2)}]),
    ("addmm", (), lambda x, y, z: x + y @ z, [{"shape": (2,)}, {}, {"shape": (4, 2)}]),
    ("baddbmm", (), lambda x, y, z: x + y @ z, [{"shape": (2,)}, {"shape": (1, 3, 4)}, {"shape": (1, 4, 2)}]),
    ("sum", ([-1],), lambda x: x.sum(-1), [{}]),
    ("sum", (), lambda x: np.array(x.sum()), [{}]),
    ("mean", ([0], True), lambda x: mean(x, 0), [{}]),
    ("var", ([-1],), lambda x: ((x - mean(x, -1)) ** 2).sum(-1) / 3, [{}]),
    ("convolution", (KERNEL, BIAS, [2], [1], [1], False, [0], 1), convolve, [{"shape": (1, 2, 5)}]),
    ("exp", (), balls.exp, [{}]),
    ("reciprocal", (), lambda x: 1 / x, [POSITIVE]),
    ("sqrt", (), balls.sqrt, [{"center": 9.0}]),
    ("rsqrt", (), lambda x: 1 / balls.sqrt(x), [{"center": 9.0}]),
    ("log", (), balls.log, [{"center": 9.0}]),
    ("sigmoid", (), balls.sigmoid, [{"center": -1.0}]),
    ("sin", (), balls.sin, [{}]),
    ("cos", (), balls.cos, [{}]),
    ("tanh", (), balls.tanh, [{}]),
    ("erf", (), balls.erf, [{}]),
    ("silu", (), lambda x: x * balls.sigmoid(x), [{}]),
    ("gelu", (), lambda x: x * balls.normal(x), [{}]),
    ("gelu", ("tanh",), tanh_gelu, [{}]),
    ("gelu_backward", (), lambda g, x: g * (balls.normal(x) + x * balls.density(x)), [{}, {}]),
    ("gelu_backward", ("tanh",), lambda g, x: g * tanh_gelu_derivative(x), [{}, {}]),
    ("softplus", (2.0,), lambda x: balls.log(1 + balls.exp(2 * x)) / 2, [{}]),
    ("softplus_backward", (2.0, 20.0), lambda g, x: g * balls.sigmoid(2 * x), [{}, {}]),
    ("_softmax", (-1, False), softmax, [{}]),
    ("_safe_softmax", (-1,), softmax, [{}]),
    ("_log_softmax", (1, False), lambda x: balls.log(softmax(x)), [{"spread": 0.1}]),
    ("native_layer_norm", ([4], VECTOR, VECTOR, 1e-5), layer_norm, [{"spread": 0.1}]),
    ("native_batch_norm", (*[VECTOR] * 4, False, 0.1, 1e-5), lambda x: (batch_norm(x),), [{}]),
    (
        "convolution_backward",
        (RandomModel((1, 2, 5)).model, KERNEL, None, [2], [1], [1], False, [0], 1, [True, False, False]),
        lambda g: (convolve_back(g),),
        [{"shape": (1, 3, 3)}],
    ),
    ("relu", (), lambda x: x, [{"center": 9.0}]),
    ("relu", (), lambda x: 0 * x, [{"center": -9.0}]),
    ("leaky_relu", (0.1,), lambda x: x * acb(0.1), [{"center": -9.0}]),
    ("abs", (), lambda x: -x, [{"center": -9.0}]),
    ("sgn", (), lambda x: 0 * x - 1, [{"center": -9.0}]),
    ("threshold_backward", (0,), lambda g, x: g, [{}, {"center": 9.0}]),
    ("leaky_relu_backward", (0.1, False), lambda g, x: g * acb(0.1), [{}, {"center": -9.0}]),
]


def make_models(settings: list[dict[str, Any]], **common: Any) -> list[RandomModel]:
    return [RandomModel(**{"shape": SHAPE, "seed": i, **common, **s}) for i, s in enumerate(settings)]


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


KINDS = {
    "polynomial": {"radius": 0.0},
    "error": {"radius": 1e-3},
    "rounding": {"radius": 0.0, "decay": 0.02, "order": 12},  # truncation is below rounding
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "arguments", "truth", "settings"), SAMPLES, ids=[s[0] for s in SAMPLES])
def test_a_rule_encloses_its_operator(name, arguments, truth, settings, kind):
    models = make_models([{**KINDS[kind], **s} for s in settings])
    results = as_tuple(RULES[name](*(m.model for m in models), *arguments))
    for disc in range(2):
        for t in points_of_the_disc():
            expected = as_tuple(truth(*(m.at(t, disc) for m in models)))
            for result, values in zip(results, expected, strict=False):
                assert bool(result.radius.isfinite().all())
                assert contains(result, values, t, disc)


@pytest.mark.parametrize(("name", "arguments", "truth", "settings"), SAMPLES, ids=[s[0] for s in SAMPLES])
def test_a_rule_is_sharp_on_small_discs(name, arguments, truth, settings):
    """On small discs nothing but rounding is left."""
    models = make_models([{**s, "decay": 0.02, "order": 12} for s in settings], radius=0.0)
    for result in as_tuple(RULES[name](*(m.model for m in models), *arguments)):
        if result is not None:
            assert float(result.radius.max()) < 1e-11 * (1 + float(result.size.max()))


def test_every_rule_has_a_sample():
    assert set(RULES) == {name for name, *_ in SAMPLES}


@pytest.mark.parametrize("name", ["exp", "gelu", "_softmax", "native_layer_norm", "bmm"])
def test_the_oracle_notices_a_wrong_coefficient(name):
    _, arguments, truth, settings = next(s for s in SAMPLES if s[0] == name)
    models = make_models(settings, radius=0.0)
    result = as_tuple(RULES[name](*(m.model for m in models), *arguments))[0]
    wrong = result.coefficients.clone()
    wrong[1] += 2 * float(result.radius.max())
    t = points_of_the_disc()[0]
    expected = as_tuple(truth(*(m.at(t, 0) for m in models)))[0]
    assert contains(result, expected, t, 0)
    assert not contains(TaylorModel(wrong, result.error), expected, t, 0)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("reciprocal", {"center": 0.0}),
        ("rsqrt", {"center": -1.0, "spread": 0.0}),
        ("log", {"center": -1.0, "spread": 0.0}),
        ("sigmoid", {"center": 0.0, "spread": 40.0}),
        ("relu", {"center": 0.0, "spread": 40.0}),
    ],
)
def test_a_singularity_makes_the_error_infinite(name, settings):
    model = RandomModel((50,), order=3, **settings).model
    result = RULES[name](model)
    assert bool(result.bound.isinf().any())


def make_node(target: Any, shape: tuple[int, ...]) -> Node:
    node = Graph().create_node("call_function", target)
    node.meta["val"] = torch.zeros(shape)
    return node


aten = torch.ops.aten
SHAPE_SAMPLES = [
    ("view", aten.view.default, ([2, 6],)),
    ("view", aten.view.default, ([12],)),
    ("view", aten.view.default, ([6, 2],)),
    ("_unsafe_view", aten._unsafe_view.default, ([1, 3, 4],)),
    ("reshape", aten.reshape.default, ([4, 3],)),
    ("unsqueeze", aten.unsqueeze.default, (-1,)),
    ("squeeze", aten.squeeze.dim, (0,)),
    ("clone", aten.clone.default, ()),
    ("detach", aten.detach.default, ()),
    ("alias", aten.alias.default, ()),
    ("_to_copy", aten._to_copy.default, ()),
    ("contiguous", aten.contiguous.default, ()),
    ("lift_fresh_copy", aten.lift_fresh_copy.default, ()),
    ("transpose", aten.transpose.int, (0, 1)),
    ("t", aten.t.default, ()),
    ("permute", aten.permute.default, ([-1, 0],)),
    ("expand", aten.expand.default, ([2, 3, 4],)),
    ("select", aten.select.int, (0, 1)),
    ("select", aten.select.int, (-1, 1)),
    ("slice", aten.slice.Tensor, (0, 1, 3)),
    ("select_backward", aten.select_backward.default, ([2, 3, 4], 0, 1)),
    ("slice_backward", aten.slice_backward.default, ([3, 9], 1, 2, 6, 1)),
    ("constant_pad_nd", aten.constant_pad_nd.default, ([1, 1], 0.0)),
    ("flip", aten.flip.default, ([1],)),
    ("index_select", aten.index_select.default, (1, torch.tensor([2, 0]))),
    ("roll", aten.roll.default, ([1], [1])),
]


@pytest.mark.parametrize(("name", "target", "arguments"), SHAPE_SAMPLES, ids=[s[0] for s in SHAPE_SAMPLES])
@pytest.mark.parametrize("axis", [-1, -2])
def test_units_move_with_their_errors(name, target, arguments, axis):
    random = RandomModel(SHAPE, axis=axis)
    expected = target(random.model.coefficients[0, 1].clone(), *arguments)
    result = SHAPE_RULES[name](make_node(target, tuple(expected.shape)), random.model, *arguments)
    assert torch.equal(result.coefficients[0, 1], expected)
    assert torch.equal(result.radius[1], target(random.model.radius[1].clone(), *arguments))
    if result.error.norm is not None:
        errors = target(random.direction[1].clone() * random.radius, *arguments)
        norms = torch.linalg.vector_norm(errors, dim=result.error.axis, keepdim=True)
        assert bool((norms <= result.error.norm[1]).all())


def test_concatenation_takes_models_and_constants():
    random, constant = RandomModel(SHAPE), torch.ones(3, 2, dtype=torch.float64)
    result = SHAPE_RULES["cat"](None, [random.model, constant], -1)
    assert torch.equal(result.coefficients[0, 0, :, 4:], constant)
    assert torch.equal(result.radius[0, :, :4], random.model.radius[0])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_stack_is_undone_by_unbind(dim):
    random = RandomModel(SHAPE)
    one, two = SHAPE_RULES["unbind"](None, SHAPE_RULES["stack"](None, [random.model, random.model], dim), dim)
    assert torch.equal(one.coefficients, random.model.coefficients)
    assert torch.equal(two.radius, random.model.radius)


@pytest.mark.parametrize(("name", "sizes"), [("split", 3), ("split_with_sizes", [1, 3])])
def test_parts_of_a_split_keep_their_errors(name, sizes):
    random = RandomModel(SHAPE)
    parts = SHAPE_RULES[name](None, random.model, sizes, -1)
    assert torch.equal(torch.cat([p.coefficients for p in parts], -1), random.model.coefficients)
    assert torch.equal(torch.cat([p.radius for p in parts], -1), random.model.radius)


def test_every_shape_rule_has_a_sample():
    assert set(SHAPE_RULES) == {
        "cat",
        "stack",
        "unbind",
        "split",
        "split_with_sizes",
        *(name for name, *_ in SHAPE_SAMPLES),
    }


def test_the_spectral_norm_is_an_upper_bound():
    from exactline.smooth.certified.error_bound import spectral_norm

    for rows, columns in [(1, 1), (3, 40), (64, 32)]:
        matrix = torch.randn(rows, columns, dtype=torch.float64)
        ratio = float(spectral_norm(matrix) / torch.linalg.matrix_norm(matrix, 2))
        assert 1 <= ratio < 1.05
    assert math.isfinite(float(spectral_norm(torch.zeros(3, 3, dtype=torch.float64))))

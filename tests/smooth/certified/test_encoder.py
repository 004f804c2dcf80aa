"""Taylor models of a whole encoder contain ball arithmetic at complex points of the disc."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flint import acb

from exactline.smooth.certified.line import Line
from exactline.smooth.certified.record import record_gradients, record_values
from tests.smooth.certified import balls
from tests.smooth.certified.balls import contains, points_of_the_disc, to_balls
from tests.smooth.certified.networks import Encoder

HEADS = 2


def linear(x: np.ndarray, weight: torch.Tensor, bias: torch.Tensor) -> np.ndarray:
    return x @ to_balls(weight.T) + to_balls(bias)


def layer_norm(x: np.ndarray, module: torch.nn.LayerNorm) -> np.ndarray:
    centred = x - x.sum(-1, keepdims=True) / x.shape[-1]
    scale = 1 / balls.sqrt((centred * centred).sum(-1, keepdims=True) / x.shape[-1] + acb(module.eps))
    return centred * scale * to_balls(module.weight) + to_balls(module.bias)


def attention(x: np.ndarray, module: torch.nn.MultiheadAttention) -> np.ndarray:
    tokens, width = x.shape
    joint = linear(x, module.in_proj_weight, module.in_proj_bias).reshape(tokens, 3, HEADS, width // HEADS)
    out = []
    for head in range(HEADS):
        q, k, v = (joint[:, part, head] for part in range(3))
        weights = balls.exp(q @ k.T / acb(width // HEADS).sqrt())
        out.append(weights / weights.sum(1, keepdims=True) @ v)
    return linear(np.concatenate(out, 1), module.out_proj.weight, module.out_proj.bias)


def evaluate_encoder(model: Encoder, x: np.ndarray) -> np.ndarray:  # (tokens * features,) to (classes,)
    tokens = x.reshape(model.tokens, model.features)
    hidden = linear(tokens, model.embed.weight, model.embed.bias) + to_balls(model.position)
    for layer in model.encoder.layers:
        hidden = hidden + attention(layer_norm(hidden, layer.norm1), layer.self_attn)
        inner = linear(layer_norm(hidden, layer.norm2), layer.linear1.weight, layer.linear1.bias)
        hidden = hidden + linear(inner * balls.normal(inner), layer.linear2.weight, layer.linear2.bias)
    pooled = layer_norm(hidden, model.norm).sum(0) / model.tokens
    return linear(pooled, model.head.weight, model.head.bias)


@pytest.fixture(scope="module")
def model() -> Encoder:
    torch.manual_seed(0)
    return Encoder(2, width=4, tokens=2, features=2).double().eval().requires_grad_(False)


@pytest.mark.parametrize("radius", [0.05, 0.01])
def test_outputs_on_a_disc_contain_ball_arithmetic(model, radius):
    start, end = torch.randn(2, 4, dtype=torch.float64)
    at = torch.tensor([[0.4], [radius]], dtype=torch.float64)
    outputs = record_values(model, [start]).run(Line((start,), (end,)).on_discs(at[0], at[1], 16))
    assert bool(outputs.radius.isfinite().all())
    for t in points_of_the_disc():
        alpha = acb(0.4) + acb(radius) * t
        truth = evaluate_encoder(model, to_balls(start) + alpha * (to_balls(end) - to_balls(start)))
        assert contains(outputs, truth, t, 0)


def test_gradients_at_a_point_contain_ball_arithmetic(model):
    start, end = torch.randn(2, 4, dtype=torch.float64)
    tape = record_gradients(model, [start])
    cotangent = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    _, (gradient,) = tape.run([*Line((start,), (end,)).at_points(torch.zeros(1, dtype=torch.float64)), cotangent])
    step = acb("1e-20")
    for i in range(4):
        shifted = [to_balls(start), to_balls(start)]
        shifted[0][i] += step
        shifted[1][i] -= step
        high, low = (evaluate_encoder(model, x)[1] for x in shifted)
        truth = (high - low) / (2 * step)  # the central difference is off by about 1e-40
        assert float(abs(truth - acb(float(gradient.coefficients[0, 0, i]))).upper()) <= float(gradient.radius[0, i])
    assert float(gradient.radius.max()) < 1e-5

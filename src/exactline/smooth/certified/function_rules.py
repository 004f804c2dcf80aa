"""Rules of univariate analytic functions and their derivatives."""

from __future__ import annotations

import math

from .analytic import COS, EXP, SIGMOID, SIN
from .compose import GELU, GELU_DERIVATIVE, NORMAL, SILU, SOFTPLUS, from_analytic, inverse_root, log, reciprocal
from .linear_rules import add, multiply, subtract
from .rule_table import RULES, Operand, Rule, rule
from .taylor_model import TaylorModel

exp, sigmoid = from_analytic(EXP), from_analytic(SIGMOID)
UNIVARIATE: dict[str, Rule] = {
    "exp": exp,
    "reciprocal": reciprocal,
    "sqrt": lambda x: x * inverse_root(x),
    "rsqrt": inverse_root,
    "sigmoid": sigmoid,
    "sin": from_analytic(SIN),
    "cos": from_analytic(COS),
    "silu": SILU,
    "log": log,
}
RULES.update(UNIVARIATE)


@rule("gelu")
def gelu(x: TaylorModel, approximate: str = "none") -> TaylorModel:
    if approximate == "none":
        return GELU(x)
    cubic = x + (x * x * x).scale(0.044715)
    return x * sigmoid(cubic.scale(2 * math.sqrt(2 / math.pi)))  # (1 + tanh(y)) / 2 = sigmoid(2 y)


@rule("gelu_backward")
def gelu_backward(grad: Operand, x: TaylorModel, approximate: str = "none") -> TaylorModel:
    if approximate == "none":
        return multiply(grad, GELU_DERIVATIVE(x))
    rate = 2 * math.sqrt(2 / math.pi)
    square = x * x
    s = sigmoid((x + (square * x).scale(0.044715)).scale(rate))
    inner = add(square.scale(3 * 0.044715), 1.0).scale(rate)
    return multiply(grad, s + x * s * subtract(1.0, s) * inner)


@rule("tanh")
def tanh(x: TaylorModel) -> TaylorModel:
    return subtract(sigmoid(x.scale(2.0)).scale(2.0), 1.0)


@rule("erf")
def erf(x: TaylorModel) -> TaylorModel:
    return subtract(NORMAL(x.scale(math.sqrt(2.0))).scale(2.0), 1.0)


@rule("softplus")
def softplus(x: TaylorModel, beta: float = 1, threshold: float = 20) -> TaylorModel:
    """log(1 + exp(beta x)) / beta, also beyond the threshold, where torch returns x."""
    return SOFTPLUS(multiply(x, float(beta))).scale(1.0 / beta)


@rule("softplus_backward")
def softplus_backward(grad: Operand, x: TaylorModel, beta: float = 1, threshold: float = 20) -> TaylorModel:
    return multiply(grad, sigmoid(multiply(x, float(beta))))

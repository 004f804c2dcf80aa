"""The onnx package's own node tests: those that are piecewise linear are read, and agree with the stored outputs."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

from tests.formats.node_tests import NodeTest, classify, collect, compare_elsewhere, run_all

SMOOTH = "is smooth"
NORM = "is a norm of its input, or divides by one"
PRODUCT = "multiplies values that depend on the input"
JUMPS = "is discontinuous"
SHAPE = "has an output whose shape depends on the input"
RANDOM = "is random"
# The operators of tests that are not read, how many there are, and why none of their inputs makes them piecewise
# linear. The tests called _expanded, which write an operator as others, count with it.
UNREAD: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh"), (2, SMOOTH)),
    **dict.fromkeys(("Tan", "Exp", "Log", "Sqrt", "Reciprocal", "Mish", "Swish", "Det"), (2, SMOOTH)),
    **dict.fromkeys(("Softplus", "Softsign"), (4, SMOOTH)),
    **dict.fromkeys(("Celu", "Elu", "Selu"), (6, SMOOTH)),
    "Erf": (1, SMOOTH),
    "Gelu": (8, SMOOTH),
    "Pow": (8, SMOOTH),
    "ReduceLogSum": (8, SMOOTH),
    "ReduceLogSumExp": (16, SMOOTH),
    "Softmax": (14, "is smooth, and written with Exp; as an operator at the end of a network it is read"),
    "LogSoftmax": (14, "is smooth, and written with Exp; as an operator at the end of a network it is read"),
    "SoftmaxCrossEntropyLoss": (60, "is smooth in its scores; with reduction mean it divides by its weights"),
    "CausalConvWithState": (8, "has the smooth activation SiLU in these tests"),
    "RNN": (6, "has the smooth activation Tanh in these tests"),
    "GRU": (6, PRODUCT),
    "LSTM": (6, PRODUCT),
    "CumProd": (7, PRODUCT),
    "HardSwish": (2, PRODUCT),
    "ReduceProd": (8, PRODUCT),
    "ReduceSumSquare": (16, PRODUCT),
    "Attention": (4, "is linear in its values, but returns the infinities of its mask in these tests"),
    "LRN": (2, NORM),
    "LpNormalization": (6, NORM),
    "LpPool": (8, NORM),
    "MeanVarianceNormalization": (3, NORM),
    "ReduceL2": (16, NORM),
    "Cast": (3, "rounds to 16 bits in these tests"),
    "Ceil": (2, JUMPS),
    "Floor": (2, JUMPS),
    "Round": (1, JUMPS),
    "Sign": (1, JUMPS),
    "Mod": (9, JUMPS),
    "Hardmax": (7, JUMPS),
    "Shrink": (2, "jumps, because its bias is not its lambd"),
    "ThresholdedRelu": (6, "jumps, because its alpha is not 0"),
    "MelWeightMatrix": (1, JUMPS),
    "Binarizer": (1, JUMPS),
    "TreeEnsemble": (2, JUMPS),
    "Unique": (6, SHAPE),
    "Range": (6, SHAPE),
    "Bernoulli": (6, RANDOM),
    "Dropout": (4, RANDOM),
}
ALL, WITHOUT_REAL_TENSORS, READ = 1884, 585, 951  # in onnx 1.23


def find_test(name: str) -> NodeTest:
    return collect()[name][0]


@pytest.mark.slow
def test_what_is_not_read_is_not_piecewise_linear():
    outcomes = run_all()
    unread = Counter(outcome.op_type for outcome in outcomes if not outcome.is_read)
    for outcome in outcomes:
        assert not any(p.startswith(("differs", "FileError")) for p in outcome.problems), outcome
        assert outcome.is_read or outcome.op_type in UNREAD, outcome
    if onnx.__version__.startswith("1.23."):
        assert unread == {name: count for name, (count, _) in UNREAD.items()}
        assert len(outcomes) - unread.total() == READ
        assert (len(collect()), len(collect()) - len(outcomes)) == (ALL, WITHOUT_REAL_TENSORS)


@pytest.mark.slow
def test_what_is_read_agrees_with_the_reference_elsewhere():
    problems = {(t.name, t.model.graph.input[0].name): compare_elsewhere(t) for ts in collect().values() for t in ts}
    assert not {test: problem for test, problem in problems.items() if problem}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("test_relu", "piecewise linear"),
        ("test_cumsum_1d", "piecewise linear"),
        ("test_exp", "other"),
        ("test_floor", "other"),
        ("test_thresholdedrelu", "other"),
        ("test_reduce_l2_keep_dims_random", "other"),
    ],
)
def test_the_reference_tells_what_is_piecewise_linear(name: str, kind: str):
    assert classify(find_test(name)) == kind

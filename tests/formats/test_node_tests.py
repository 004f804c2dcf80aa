"""The onnx package's own node tests: those that are piecewise linear are read, and agree with the stored outputs."""

from __future__ import annotations

import onnx
import pytest

from exactline.formats.onnx.unsupported import UNSUPPORTED_REASONS
from tests.formats.node_tests import NodeTest, classify, collect, try_to_read

# piecewise linear in some tests, and not supported
MISSED = {"DeformConv", "CausalConvWithState", "LinearAttention", "STFT", "Scan"}
# refused because of what they compute in a test, although they are read in others
CONDITIONAL = {
    *(
        "Softmax",
        "LogSoftmax",
        "Sigmoid",
        "Tanh",
        "Mul",
        "MatMul",
        "Div",
        "Add",
        "Where",
        "Shrink",
        "Range",
        "Cast",
        "Dropout",
    ),
    *("BatchNormalization", "Conv", "Sign"),
}
RANDOM_OR_CONSTANT = {"Bernoulli", "RandomUniformLike", "RandomNormalLike", "MelWeightMatrix", "Input", "output"}
READ_IN_ONNX_1_23 = 555


def find_test(name: str) -> NodeTest:
    return next(test for test in collect()[0] if test.name == name)


@pytest.mark.slow
def test_what_is_not_read_is_not_piecewise_linear_or_known_to_be_missed():
    problems = {test.name: try_to_read(test) for test in collect()[0]}
    read = sum(not problem for problem in problems.values())
    if tuple(map(int, onnx.__version__.split(".")[:2])) >= (1, 23):
        assert read >= READ_IN_ONNX_1_23
    known = {*MISSED, *CONDITIONAL, *RANDOM_OR_CONSTANT, *UNSUPPORTED_REASONS}
    for name, problem in problems.items():
        if problem and not problem.startswith("NumberError: y holds NaN"):
            kind, _, rest = problem.partition(": ")
            assert kind == "UnsupportedError", f"{name}: {problem}"
            blamed = {line.split(": ")[1].split()[0] for line in rest.split("; ") if ": " in line}
            assert blamed, f"{name}: {problem}"
            assert blamed <= known, f"{name}: {problem}"


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

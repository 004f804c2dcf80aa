"""The onnx package's own node tests, sorted by what they are as functions of one real input.

A test counts as read if there is an input for which, with all others constant, the file loads and gives the stored
outputs.

``python -m tests.formats.node_tests`` prints how many are read correctly, and what is refused and why.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from exactline.errors import ExactlineError
from exactline.formats.onnx import read_onnx
from exactline.network import Network
from exactline.network.smooth_network import require_piecewise_linear

FLOAT_TYPES = (1, 10, 11, 16)  # TensorProto.DataType
NUMPY_TYPES = {1: np.float32, 10: np.float16, 11: np.float64}
PROBED_POINTS = 65  # on each line, in float64
PROBED_LINES = 1
PROBED_ELEMENTS = 40  # of the outputs
MAX_BENT = 0.5  # share of the second differences that a piecewise-linear function may have
BISECTIONS = 40
JUMP = 1e-3  # of the range of values, over an interval of 2**-40 of the line
PIECEWISE_LINEAR, CONSTANT, OTHER, NOT_REAL, NOT_RUN = "piecewise linear", "constant", "other", "not real", "not run"


@dataclass(frozen=True)
class NodeTest:
    """One test of the package, as a file with one input."""

    name: str
    op_type: str  # the operator that is tested
    model: onnx.ModelProto  # all inputs but one are constants, and the outputs are real
    point: np.ndarray[Any, Any]  # the stored data
    outputs: tuple[np.ndarray[Any, Any], ...]  # the stored outputs
    rtol: float  # that the test allows


@cache
def collect() -> dict[str, list[NodeTest]]:
    """All tests by name, once for each real input that can be the data; an empty list where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import numpy.testing  # noqa: F401  (onnx's test of Attention needs it loaded)
        import onnx.backend.test.case.node as cases

        collected = cases.collect_testcases(None)  # type: ignore[arg-type]
    op_types = {case.name: case.model.graph.node[0].op_type for case in collected}
    return {case.name: _prepare(case, op_types) for case in collected}


def _prepare(case: Any, op_types: dict[str, str]) -> list[NodeTest]:
    """A test once for each input that can be the data; none where no input or no output is a real tensor."""
    inputs, outputs = case.data_sets[0]
    graph = case.model.graph
    named = [(info, _to_array(value)) for info, value in zip(graph.input, inputs, strict=False)]
    real = [k for k, o in enumerate(graph.output) if o.type.tensor_type.elem_type in FLOAT_TYPES]
    if any(not isinstance(value, np.ndarray) for _, value in named) or not real or max(real) >= len(outputs):
        return []
    stored = tuple(np.asarray(_to_array(outputs[k]), dtype=np.float64) for k in real)
    op_type = op_types.get(case.name.partition("_expanded")[0], graph.node[0].op_type)
    found: list[NodeTest] = []
    for data, point in named:
        if data.type.tensor_type.elem_type in FLOAT_TYPES and point.size:
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            del model.graph.input[:]
            del model.graph.output[:]
            model.graph.input.append(data)
            model.graph.output.extend(graph.output[k] for k in real)
            constants = [numpy_helper.from_array(v, i.name) for i, v in named if i.name != data.name]
            model.graph.initializer.extend(constants)
            found.append(NodeTest(case.name, op_type, model, np.asarray(point, dtype=np.float64), stored, case.rtol))
    return found


def _to_array(value: Any) -> Any:
    if isinstance(value, (np.generic, int, float)):
        return np.asarray(value)
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def classify(test: NodeTest) -> str:
    """What ONNX's reference says that a test is as a function of its data."""
    run = _make_function(test)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return _classify_function(run, test.point)
        except Exception:  # noqa: BLE001  (the reference fails in many ways)
            return NOT_RUN


def _make_function(test: NodeTest) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """All outputs as one vector."""
    session = ReferenceEvaluator(test.model)
    name = test.model.graph.input[0].name

    def run(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        outputs = session.run(None, {name: x})
        return np.concatenate([np.asarray(o, dtype=np.float64).reshape(-1) for o in outputs])

    return run


def _classify_function(run: Callable[[Any], np.ndarray[Any, Any]], point: np.ndarray[Any, Any]) -> str:
    random = np.random.default_rng(0)
    scale = float(np.abs(point).mean()) + 0.1
    kinds = set[str]()
    for _ in range(PROBED_LINES):
        start = point + scale * random.standard_normal(point.shape)
        end = point + scale * random.standard_normal(point.shape)

        def at(t: float, start: Any = start, end: Any = end) -> np.ndarray[Any, Any]:
            return run(start + t * (end - start))

        values = np.stack([at(t) for t in np.linspace(0, 1, PROBED_POINTS)])
        if not np.isfinite(values).all():
            return OTHER
        varying = np.flatnonzero(np.ptp(values, axis=0) > 1e-9 * (1 + np.abs(values).max(axis=0)))
        chosen = random.permutation(varying)[:PROBED_ELEMENTS]
        kinds |= {_classify_element(lambda t, e=e: float(at(t)[e]), values[:, e]) for e in chosen}
    if OTHER in kinds:
        return OTHER
    return PIECEWISE_LINEAR if kinds else CONSTANT


def _classify_element(at: Callable[[float], float], values: np.ndarray[Any, Any]) -> str:  # (points,)
    """Whether one output is continuous, and bent at few places only."""
    spread = float(np.ptp(values))
    bent = np.abs(np.diff(values, 2)) > 3e-6 * np.abs(values).max()  # some of the reference computes in float32
    if bent.mean() > MAX_BENT:
        return OTHER
    step = int(np.argmax(np.abs(np.diff(values))))
    if np.abs(np.diff(values)).max() < 3 * spread / (len(values) - 1):
        return PIECEWISE_LINEAR
    left, right = step / (len(values) - 1), (step + 1) / (len(values) - 1)
    below, above = float(values[step]), float(values[step + 1])
    for _ in range(BISECTIONS):
        middle = (left + right) / 2
        value = at(middle)
        if abs(value - below) > abs(above - value):
            right, above = middle, value
        else:
            left, below = middle, value
    return OTHER if abs(above - below) > JUMP * spread else PIECEWISE_LINEAR


def read_test(test: NodeTest) -> Network:
    """Read a test; one of a batch whose points are mixed, as one point."""
    data = test.model.SerializeToString()
    try:
        return require_piecewise_linear(read_onnx(data, test.name, folder=None))
    except ExactlineError as problem:
        if "are mixed" not in problem.problem:
            raise
        return require_piecewise_linear(read_onnx(data, test.name, folder=None, shape=test.point.shape))


def try_to_read(test: NodeTest) -> str:
    """Read a test and compare it with the stored outputs; an empty text where they agree, otherwise the problem."""
    try:
        network = read_test(test)
    except ExactlineError as problem:
        nodes = getattr(problem, "nodes", ())
        return f"{type(problem).__name__}: {'; '.join(nodes) if nodes else str(problem).splitlines()[0]}"
    return _compare(network, test, test.point, test.outputs, 1e-5)


def compare_elsewhere(test: NodeTest) -> str:
    """Compare a test that is read with ONNX's reference at a random point; an empty text where they agree.

    A test that the reference cannot run, or whose input has a type that NumPy lacks, is passed over.
    """
    kind = NUMPY_TYPES.get(test.model.graph.input[0].type.tensor_type.elem_type)
    try:
        network = read_test(test)
    except ExactlineError:
        return ""
    point = np.random.default_rng(5).standard_normal(test.point.shape).astype(kind or np.float32)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            outputs = ReferenceEvaluator(test.model).run(None, {test.model.graph.input[0].name: point})
        except Exception:  # noqa: BLE001  (the reference fails in many ways)
            return ""
    expected = tuple(np.asarray(output, dtype=np.float64) for output in outputs)
    return "" if kind is None else _compare(network, test, point.astype(np.float64), expected, 1e-4)


def _compare(
    network: Network,
    test: NodeTest,
    point: np.ndarray[Any, Any],
    expected: tuple[np.ndarray[Any, Any], ...],
    tolerance: float,
) -> str:
    """Compare a network with the expected outputs at a point; an empty text where they agree."""
    found = network(torch.tensor(point).reshape(-1, *network.input_shape), tail=True)  # type: ignore[arg-type]
    kinds = [o.type.tensor_type.elem_type for o in test.model.graph.output]
    rtol, atol = (3e-2, 3e-2) if {10, 16} & set(kinds) else (max(test.rtol, tolerance), tolerance)
    for value, wanted in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        if value.numel() != wanted.size:
            return f"differs in shape: {tuple(value.shape)} and {wanted.shape}"
        numbers = value.numpy().reshape(-1)
        if not np.allclose(numbers, wanted.reshape(-1), rtol=rtol, atol=atol, equal_nan=True):
            return f"differs by {np.nanmax(np.abs(numbers - wanted.reshape(-1))):.2g}"
    return ""


@dataclass(frozen=True)
class Outcome:
    """What became of one test."""

    name: str
    op_type: str
    problems: tuple[str, ...]  # one for each data input; empty where the test is read with one of them

    @property
    def is_read(self) -> bool:
        """Whether there is an input for which the test is read, and agrees with the stored outputs."""
        return not self.problems


@cache
def run_all() -> list[Outcome]:
    """Try every test that has a real input and a real output."""
    outcomes: list[Outcome] = []
    for name, tests in collect().items():
        problems: list[str] = []
        for test in tests:
            problems.append(try_to_read(test))
            if not problems[-1]:
                break
        if tests:
            outcomes.append(Outcome(name, tests[0].op_type, () if "" in problems else tuple(problems)))
    return outcomes


def main() -> None:
    """Print the counts, and what is refused, with what the reference says of each data input."""
    counts = Counter({"all": len(collect()), NOT_REAL: sum(not tests for tests in collect().values())})
    for outcome in run_all():
        if outcome.is_read:
            counts["read, and agree"] += 1
            continue
        kinds = [classify(test) for test in collect()[outcome.name]]
        counts[f"not read: {PIECEWISE_LINEAR if PIECEWISE_LINEAR in kinds else ', '.join(sorted(set(kinds)))}"] += 1
        for test, kind, problem in zip(collect()[outcome.name], kinds, outcome.problems, strict=True):
            print(f"{kind:17s} {outcome.op_type} {outcome.name}({test.model.graph.input[0].name}): {problem[:200]}")
    print(*(f"{count:5d} {name}" for name, count in sorted(counts.items())), sep="\n")


if __name__ == "__main__":
    main()

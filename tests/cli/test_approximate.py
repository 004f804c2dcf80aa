"""The commands for files that are not piecewise linear: approximate, decide --tol and attribute --tol."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

import exactline as xl

onnx = pytest.importorskip("onnx")
LINE = ("--from", "-3,2", "--to", "3,-1")


@pytest.fixture(autouse=True)
def smooth_file(tmp_path):
    """A file with a Tanh between two products; the largest output changes along the line."""
    helper = onnx.helper
    weights = {
        "w": np.array([[1.0, -0.5, 0.3], [0.2, 1.0, -1.0]], dtype=np.float32),
        "v": np.array([[2.0, -1.0], [0.5, 1.0], [-1.0, 1.5]], dtype=np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", 1, (1, 2))],
        [helper.make_tensor_value_info("y", 1, (1, 2))],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "tanh.onnx").write_bytes(model.SerializeToString())
    yield
    plt.close("all")


def test_approximate_prints_the_curve(run):
    status, out, err = run("approximate", "tanh.onnx", *LINE, "--tol", "1e-9", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    curve = xl.approximate(xl.load("tanh.onnx"), [-3.0, 2.0], [3.0, -1.0], tol=1e-9)
    assert found["status"] == "estimated"
    assert found["error"] == curve.error <= 1e-9
    assert found["breakpoints"] == curve.breakpoints.tolist()
    status, out, _ = run("approximate", "tanh.onnx", *LINE)
    assert status == 0
    assert "estimated, error" in out


def test_files_and_pictures_are_written(run, tmp_path):
    status, _, err = run("approximate", "tanh.onnx", *LINE, "--out", "c.safetensors", "--plot", "c.png")
    assert status == 0
    assert err == "saved to c.safetensors\ndrawn to c.png\n"
    assert xl.Approximation.load(tmp_path / "c.safetensors").status == "estimated"


def test_a_piecewise_linear_file_is_exact(run):
    status, out, _ = run("approximate", "loan.nnet", "--from", "20,30", "--to", "30,50", "--json")
    assert status == 0
    assert json.loads(out)["status"] == "exact"


def test_decide_needs_a_tolerance(run):
    status, _, err = run("decide", "tanh.onnx", *LINE)
    assert status == 3
    assert "Tanh" in err
    assert "--tol" in err
    status, out, _ = run("decide", "tanh.onnx", *LINE, "--tol", "1e-9", "--json")
    assert status == 0
    found = json.loads(out)
    assert found["status"] == "estimated"
    curve = xl.approximate(xl.load("tanh.onnx"), [-3.0, 2.0], [3.0, -1.0])
    assert len(found["boundaries"]) == len(curve.decisions()) - 1 > 0
    for boundary in found["boundaries"]:
        first, second = curve.at(boundary).tolist()
        assert first == pytest.approx(second, abs=1e-7)


def test_attribute_needs_a_tolerance(run):
    assert run("attribute", "tanh.onnx", "--input", "3,-1")[0] == 3
    status, out, _ = run("attribute", "tanh.onnx", "--input", "3,-1", "--tol", "1e-8", "--json")
    assert status == 0
    found = json.loads(out)
    assert found["status"] == "estimated"
    assert found["error"] <= 1e-8
    assert abs(found["delta"]) < 1e-8
    status, out, _ = run("attribute", "tanh.onnx", "--input", "3,-1", "--tol", "1e-8")
    assert status == 0
    assert "relative error" in out


def test_a_missed_tolerance_is_a_note(run):
    status, _, err = run("approximate", "tanh.onnx", *LINE, "--tol", "1e-19")
    assert status == 0
    assert err.startswith("warning: The error is estimated as")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("--tol", "-1"), 2, "tol"),
        (("--max-evaluations", "0"), 2, "max_evaluations"),
        (("--output", "7"), 2, "output"),
    ],
)
def test_bad_options(run, arguments, code, word):
    status, out, err = run("approximate", "tanh.onnx", *LINE, *arguments)
    assert (status, out) == (code, "")
    assert word in err


def test_restrict_names_approximate(run):
    status, _, err = run("restrict", "tanh.onnx", *LINE)
    assert status == 3
    assert "exactline.approximate" in err

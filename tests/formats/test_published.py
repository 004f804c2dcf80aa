"""Published networks: they agree with other programs, pairs of files agree, and round trips change nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import exactline as xl
from exactline.formats import load_network

SHAPES = {"pnet": (12, 12, 3)}  # of inputs that files leave open
REFUSED = {  # not piecewise linear, or not a function of the input, and what must be named
    "ibp_3_3_8": ["MatMul multiplies two values", "Softmax is smooth"],
    "constant": ["does not depend on the input"],
    "dropout_training_mode_true": ["Dropout drops units at random"],
}
MANY = 100


def files(folder: Path, *endings: str) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.name.removesuffix(".gz").endswith(endings))


def loaded(path: Path) -> xl.Network:
    return load_network(path, shape=SHAPES.get(path.stem))


def points_of(network: xl.Network, count: int, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = [network.nodes[i].shape for i in network.inputs]
    return [random.random((count, *shape)).astype(np.float32) for shape in shapes]


def outputs(network: xl.Network, points: list[np.ndarray]) -> list[np.ndarray]:
    found = network(*(torch.from_numpy(p) for p in points), tail=True)
    return [f.reshape(len(f), -1).numpy() for f in (found if isinstance(found, tuple) else (found,))]


def session_of(data: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(data, options)


def one_by_one(run: Any, inputs: Any, points: list[np.ndarray]) -> list[np.ndarray]:
    """Outputs of a program that takes one point at a time."""
    rows = []
    for k in range(len(points[0])):
        feed = {}
        for (name, dims), p in zip(inputs, points, strict=True):
            shape = [d if isinstance(d, int) and d > 0 else 1 for d in dims]
            feed[name] = p[k].reshape(shape if np.prod(shape) == p[k].size else (1, *p[k].shape))
        rows.append([np.asarray(o).reshape(-1) for o in run(None, feed)])
    return [np.stack(column) for column in zip(*rows, strict=True)]


def apart(found: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The largest difference, as a share of the largest output."""
    pairs = zip(found, want, strict=True)
    return max(float(np.abs(f - w).max() / max(np.abs(w).max(), 1e-30)) for f, w in pairs)


def upcast(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with every real number in double precision."""
    for tensor in model.graph.initializer:
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT:
                attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float64)))
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    known = {"", *(t.name for t in (*model.graph.initializer, *model.graph.input))}
    waiting, ordered = list(model.graph.node), []
    while waiting:  # some files define a constant after its use
        node = next(n for n in waiting if known.issuperset(n.input))
        waiting.remove(node)
        ordered.append(node)
        known.update(node.output)
    del model.graph.node[:]
    model.graph.node.extend(ordered)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return model


@pytest.mark.slow
def test_every_published_onnx_file_loads_and_agrees_with_onnxruntime(data: Path):
    wrong: list[str] = []
    for path in files(data, ".onnx"):
        try:
            network = loaded(path)
        except xl.UnsupportedError as problem:
            words = REFUSED.get(path.stem, ["nothing: it should load"])
            if not all(any(word in node for node in problem.nodes) for word in words):
                wrong.append(f"{path.name}: {problem}")
            continue
        points = points_of(network, MANY)
        session = session_of(path.read_bytes())
        inputs = [(i.name, i.shape) for i in session.get_inputs()]
        worst = apart(outputs(network, points), one_by_one(session.run, inputs, points))
        if worst > 1e-4:
            wrong.append(f"{path.name}: off by {worst:.1g}")
    assert not wrong, "\n".join(wrong)


def in_double(path: Path, count: int) -> float:
    network = loaded(path)
    points = points_of(network, count)
    model = upcast(onnx.load(path))
    reference = ReferenceEvaluator(model)
    known = {t.name for t in model.graph.initializer}
    shapes = [i for i in model.graph.input if i.name not in known]
    inputs = [(i.name, [d.dim_value for d in i.type.tensor_type.shape.dim]) for i in shapes]
    doubles = [p.astype(np.float64) for p in points]
    return apart(outputs(network, points), one_by_one(reference.run, inputs, doubles))


def refers(path: Path) -> bool:
    """Whether ONNX's reference can evaluate the file, and rightly: it errs in old batch normalisations."""
    model = onnx.load(path)
    old = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")) < 14
    return path.stem not in REFUSED and not (old and any(n.op_type == "BatchNormalization" for n in model.graph.node))


def test_published_onnx_files_agree_with_an_evaluation_in_double(data: Path):
    small = [p for p in files(data, ".onnx") if p.stat().st_size < 1 << 18 and "ACASXU" not in p.name and refers(p)]
    small += files(data / "acasxu" / "onnx", ".onnx")[:3]
    found = {p.name: in_double(p, 3) for p in small}
    assert len(found) > 30
    assert {k: v for k, v in found.items() if v > 1e-10} == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_published_onnx_files_agree_with_an_evaluation_in_double_on_many_points(data: Path):
    found = {p.name: in_double(p, MANY) for p in files(data, ".onnx") if refers(p)}
    assert {k: v for k, v in found.items() if v > 1e-10} == {}


def lines_in_the_box(network: xl.Network, count: int) -> tuple[np.ndarray, np.ndarray]:
    starts, ends = (points_of(network, count, seed)[0].astype(np.float64) - 0.5 for seed in (1, 2))
    return starts, ends


@pytest.mark.slow
def test_all_acas_xu_pairs_have_the_same_breaks(data: Path):
    pairs = list(zip(files(data / "acasxu" / "nnet", ".nnet"), files(data / "acasxu" / "onnx", ".onnx"), strict=True))
    assert len(pairs) == 45
    for text, other in pairs:
        assert text.stem == other.stem
        bare, network = xl.load(text, normalize=False), xl.load(other)
        starts, ends = lines_in_the_box(bare, 20)
        shape = (20, *network.input_shape)  # type: ignore[misc]
        left = xl.restrict_many(bare, starts, ends)
        right = xl.restrict_many(network, starts.reshape(shape), ends.reshape(shape))
        for a, b in zip(left, right, strict=True):
            assert len(a) == len(b), text.stem
            assert float((a.alphas - b.alphas).abs().max()) <= 1e-4, text.stem


@pytest.mark.parametrize("most", [1 << 18, pytest.param(1 << 30, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_round_trip_through_onnx_changes_no_break(data: Path, tmp_path: Path, most: int):
    chosen = [p for p in files(data, ".onnx") if p.stat().st_size < most and p.stem not in REFUSED]
    chosen = [p for p in chosen if "ACASXU" not in p.name or "_1_1_" in p.name]
    chosen += [files(data / "acasxu" / "nnet", ".nnet")[0], *files(data / "eran", ".pyt", ".tf", ".eran")[:4]]
    wrong: list[str] = []
    breaks = 3000 if most > 1 << 18 else 500
    for path in chosen:
        network = loaded(path)
        network.save(tmp_path / "again.onnx")
        again = xl.load(tmp_path / "again.onnx")
        ends = [tuple(torch.as_tensor(p[0]).double() for p in points_of(network, 1, seed)) for seed in (3, 4)]
        one, two = (
            xl.restrict(n, *(e if n.several_inputs else e[0] for e in ends), max_breaks=breaks)
            for n in (network, again)
        )
        if len(one) != len(two) or float((one.alphas - two.alphas).abs().max()) > 1e-12:
            wrong.append(f"{path.name}: {len(one)} pieces became {len(two)}")
            continue
        session = session_of((tmp_path / "again.onnx").read_bytes())
        inputs = session.get_inputs()
        points = points_of(network, 7)
        kinds = [np.float64 if "double" in i.type else np.float32 for i in inputs]
        feed = {i.name: p.astype(k) for i, p, k in zip(inputs, points, kinds, strict=True)}
        ran = [np.asarray(o).reshape(7, -1) for o in session.run(None, feed)]
        if apart(outputs(network, points), ran) > 1e-4:
            wrong.append(f"{path.name}: onnxruntime says something else")
    assert not wrong, "\n".join(wrong)


def test_a_large_file_loads_in_seconds(tmp_path: Path):
    """The promise is 3 s for 25 MB; a busy machine gets four times that."""
    shape, nodes, weights, x = [1, 64, 16, 16], [], [], "x"
    random = np.random.default_rng(0)
    for i in range(88):
        kernel = random.standard_normal((128 if i % 2 == 0 else 64, 64 if i % 2 == 0 else 128, 3, 3)) * 0.05
        weights.append(numpy_helper.from_array(kernel.astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        x = f"r{i}"
    io = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), (x, None))]
    graph = helper.make_graph(nodes, "large", io[:1], io[1:], weights)
    path = tmp_path / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    began = time.perf_counter()
    network = xl.load(path)
    took = time.perf_counter() - began
    print(f"{path.stat().st_size / 1e6:.0f} MB loaded in {took:.2f} s")
    assert path.stat().st_size > 25e6
    assert len(network.nodes) == 177
    assert took < 12


@pytest.mark.slow
def test_info_tells_of_every_file_in_the_folder(data: Path, capsys: pytest.CaptureFixture[str]):
    from typer.testing import CliRunner

    from exactline.cli import app

    shown = CliRunner().invoke(app, ["info", str(data)], env={"COLUMNS": "160"}).stdout
    with capsys.disabled():
        print(f"\n{shown}")
    rows = [row for row in shown.splitlines() if ".onnx" in row or ".nnet" in row or ".pyt" in row or ".tf" in row]
    assert len(rows) >= 150
    assert sum("can be restricted exactly" in row for row in rows) >= len(rows) - 4

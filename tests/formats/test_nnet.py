"""Files in .nnet give the functions they say, in the units they say, or an error that names the line."""

import contextlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from exactline.errors import ExactlineError, FileError, NumberError
from exactline.formats import load
from exactline.formats.nnet import read_nnet

SIZES = (3, 5, 4, 2)


@pytest.fixture
def parts():
    """Weights, biases, means and ranges of a small network."""
    rng = np.random.default_rng(1)
    layers = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairwise(SIZES)]
    return layers, rng.normal(size=SIZES[0] + 1), rng.uniform(1, 9, size=SIZES[0] + 1)


def row(values):
    return "".join(f"{float(v)!r}," for v in values)


def written(parts):
    layers, means, ranges = parts
    sizes = ",".join(map(str, SIZES))
    lines = ["// a comment", "", f"{len(SIZES) - 1},{SIZES[0]},{SIZES[-1]},{max(SIZES)},", f"{sizes},", "0,"]
    lines += [row([-1.0] * SIZES[0]), row([1.0] * SIZES[0]), row(means), row(ranges)]
    for weight, bias in layers:
        lines += [row(r) for r in weight] + [row([b]) for b in bias]
    return lines


def value(parts, x, normalize):
    layers, means, ranges = parts
    if normalize:
        x = (x - means[:-1]) / ranges[:-1]
    for i, (weight, bias) in enumerate(layers):
        x = x @ weight.T + bias
        if i < len(layers) - 1:
            x = np.maximum(x, 0)
    return x * ranges[-1] + means[-1] if normalize else x


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_values_are_those_of_the_layers(parts, normalize, end):
    network = read_nnet(end.join(written(parts)).encode(), "a file", normalize=normalize)
    x = np.random.default_rng(2).normal(size=(50, SIZES[0])) * 5
    assert network.input_shape == (3,)
    assert network.units == {"relu": 9}
    np.testing.assert_allclose(network(torch.tensor(x)).numpy(), value(parts, x, normalize), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("line", "text", "kind"),
    [
        (3, "3,5,4,3,", FileError),  # not the number of outputs
        (2, "999999999,3,2,5,", FileError),
        (3, "3,5,4.5,2,", FileError),
        (3, "3,99999999,4,2,", FileError),
        (7, "0,0,0,", FileError),  # the output's mean is missing
        (8, "1,1,0,1,", FileError),  # a range of 0
        (9, "1,2,", FileError),
        (9, "1,nan,2,", NumberError),
        (9, "1,-Infinity,2,", NumberError),
        (9, "1,1e999,2,", NumberError),
        (9, "1,0x10,2,", FileError),
        (9, "1,1_0,2,", FileError),
        (9, "1,,2,", FileError),
        (9, "1,2 3,", FileError),
        (9, "1,\u0663,2,", FileError),  # a digit, but not one of ours
        (9, "1," + "0" * 5000 + ",2,", FileError),
    ],
)
def test_what_is_wrong_is_named_with_its_line(parts, line, text, kind):
    lines = written(parts)
    lines[line] = text
    with pytest.raises(kind, match=rf"a file, line {line + 1}\b"):
        read_nnet("\n".join(lines).encode(), "a file", normalize=True)


def test_a_file_cut_off_anywhere_is_an_error(parts):
    lines = written(parts)
    for count in range(len(lines)):
        with pytest.raises(FileError):
            read_nnet("\n".join(lines[:count]).encode(), "a file", normalize=True)
    with pytest.raises(FileError, match="lines after the last layer"):
        read_nnet("\n".join([*lines, "1,"]).encode(), "a file", normalize=True)


def test_damaged_bytes_never_give_another_kind_of_error(parts):
    text = bytearray("\n".join(written(parts)).encode())
    rng = np.random.default_rng(3)
    for _ in range(300):
        damaged = text.copy()
        for place in rng.integers(0, len(text), size=3):
            damaged[place] = rng.integers(0, 256)
        with contextlib.suppress(ExactlineError):
            read_nnet(bytes(damaged), "a file", normalize=True)


def test_acas_xu_agrees_with_its_twins(data: Path):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    files = sorted((data / "acasxu" / "nnet").glob("*.nnet"))
    assert len(files) == 45
    points = np.random.default_rng(4).uniform(-0.5, 0.5, size=(8, 5)).astype(np.float32)
    for file in files:
        session = runtime.InferenceSession(data / "acasxu" / "onnx" / f"{file.stem}.onnx", options)
        name = session.get_inputs()[0].name
        theirs = np.concatenate([session.run(None, {name: p.reshape(1, 1, 1, 5)})[0] for p in points])
        ours = load(file, normalize=False)(torch.tensor(points)).numpy()
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max(), file.name
    means = np.array([19791.091, 0.0, 0.0, 650.0, 600.0])
    ranges = np.array([60261.0, 6.28318530718, 6.28318530718, 1100.0, 1200.0])
    whole = load(files[-1])(torch.tensor(points * ranges + means)).numpy()
    np.testing.assert_allclose(whole, ours * 373.94992 + 7.5188840201005975, rtol=1e-9, atol=1e-9)

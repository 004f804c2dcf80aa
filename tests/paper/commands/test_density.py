"""The command study density: what it writes, prints and refuses."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network


@pytest.fixture
def files(run, tmp_path):
    """Two small networks and six images, as files."""
    for name, seed in (("one.onnx", 0), ("two.onnx", 1)):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double().eval()
        as_network(model, [torch.zeros(4)]).save(tmp_path / name)
    pixels = np.random.RandomState(0).randint(0, 256, (6, 2, 2))
    np.savez(tmp_path / "images.npz", images=pixels, labels=np.arange(6) % 3)
    return tmp_path


@pytest.mark.slow
def test_densities_of_given_networks_and_images(run, files):
    arguments = ("--networks", "one.onnx", "two.onnx", "--data", "images.npz", "--scale", 255, "--random", 2)
    status, out, err = run("study", "density", *arguments, "--checkpoints", "two.onnx", "one.onnx", "--out", "out")
    assert (status, err) == (0, "")
    assert "breaks per unit of length" in out
    assert "14 files in out" in out
    with (files / "out/densities.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 6 * 3
    assert {row["network"] for row in rows} == {"one", "two"}
    point = np.load(files / "images.npz")["images"][0].reshape(-1) / 255
    sign = np.random.RandomState(0).choice([-1, 1], (4,))
    line = xl.restrict(xl.load(files / "one.onnx"), point, np.clip(point + 0.1 * sign, 0, 1))
    assert int(rows[1]["breaks"]) == len(line.alphas)
    with (files / "out/epochs.csv").open() as file:
        assert [row["file"] for row in csv.DictReader(file)] == ["two.onnx"] * 2 + ["one.onnx"] * 2
    again = run(
        "study", "density", *arguments, "--checkpoints", "two.onnx", "one.onnx", "--out", "out", "--no-pictures"
    )
    assert again[0] == 0
    assert again[2] == "24 images had been finished before\n"


@pytest.mark.slow
def test_without_arguments_the_bundled_networks_are_studied(run, tmp_path):
    status, out, err = run("study", "density", "--images", 2, "--reach", 0)
    assert (status, err) == (0, "")
    for name in ("normal", "pgd", "diffai"):
        assert name in out
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
def test_json_agrees_with_the_tables(run, files):
    arguments = (
        "--networks",
        "one.onnx",
        "two.onnx",
        "--data",
        "images.npz",
        "--scale",
        255,
        "--checkpoints",
        "two.onnx",
    )
    status, out, err = run("study", "density", *arguments, "--out", "out", "--no-pictures", "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert {Path(name).name for name in found["files"]} == {path.name for path in (files / "out").glob("*.*")}
    for name in ("ratios", "epochs"):
        with (files / f"out/{name}.csv").open() as file:
            rows = [[row[key] for key in row] for row in csv.DictReader(file)]
        assert rows == [["nan" if value is None else str(value) for value in row.values()] for row in found[name]]
    assert [(row["network"], row["kind"]) for row in found["densities"]] == [
        (network, kind) for network in ("one", "two") for kind in ("FGSM", "random")
    ]


@pytest.mark.slow
def test_an_option_may_be_repeated(run, files):
    arguments = ("--networks", "one.onnx", "--networks", "two.onnx", "--data", "images.npz", "--scale", 255)
    status, out, _ = run("study", "density", *arguments, "--perturb", "multiplicative", "--levels", 255)
    assert status == 0
    assert "two" in out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--networks", "one.onnx"), 2, "takes images of shape (4,)"),
        (("--networks", "nothing.onnx"), 6, "nothing.onnx"),
        (("--networks", "one.onnx", "loan.nnet", "--data", "images.npz"), 2, "same shapes"),
        (("--networks", "one.onnx", "one.onnx", "--data", "images.npz"), 2, "different names"),
        (("--networks", "one.onnx", "--data", "nothing.npz"), 6, "nothing.npz"),
        (("--networks", "one.onnx", "--data", "loan.nnet"), 6, "cannot be read from a file of this type"),
        (("--networks", "one.onnx", "--data", "images.npz", "--scale", 0), 2, "scale must be above 0"),
        (("--checkpoints", "one.onnx"), 2, "takes images of shape (4,)"),
        (("--perturb", "magic"), 2, "no perturbation 'magic'"),
        (("--eps", -1), 2, "eps cannot be -1.0"),
        (("--clip", "0"), 2, "not a range"),
        (("--clip", "1,0"), 2, "low cannot be 1.0"),
        (("--random", 0), 2, "random cannot be 0"),
        (("--images", 0), 2, "no 0 images"),
        (("--reach", -2), 2, "reach cannot be -2.0"),
        (("--out", "loan.nnet"), 6, "folder cannot be created"),
    ],
)
@pytest.mark.every(12)
def test_invalid_studies_are_refused(run, files, arguments, status, words):
    found, out, err = run("study", "density", *arguments)
    assert (found, out) == (status, ""), err
    assert words in err
    assert "Traceback" not in err

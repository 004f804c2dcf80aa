"""The commands train and study density: what they write, say and refuse."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network
from exactline.paper import attack


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    """How good the attack is does not matter here."""
    monkeypatch.setattr(attack, "STEPS", 2)
    monkeypatch.setattr(attack, "RESTARTS", 1)


@pytest.fixture
def files(run, tmp_path):
    """Two small networks and images of one's own."""
    for name, seed in (("one.onnx", 0), ("two.onnx", 1)):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double().eval()
        as_network(model, [torch.zeros(4)]).save(tmp_path / name)
    pixels = np.random.RandomState(0).randint(0, 256, (6, 2, 2))
    np.savez(tmp_path / "images.npz", images=pixels, labels=np.arange(6) % 3)
    return tmp_path


def test_a_network_is_trained_saved_and_told_of(run, tmp_path):
    status, out, err = run("train", "digits", "--method", "diffai", "--epochs", 1, "--seed", 2, "--out", "net.onnx")
    assert status == 0
    assert err == "saved to net.onnx\n"
    for words in (
        "diffai, seed 2, 1 epoch",
        "read correctly",
        "withstand PGD within 0.1",
        "certified by interval bounds",
    ):
        assert words in out
    network = xl.load(tmp_path / "net.onnx")
    assert (network.input_shape, network.output_shape) == ((1, 8, 8), (10,))


def test_checkpoints_are_networks_in_order_and_the_last_is_the_answer(run, tmp_path):
    arguments = ("--epochs", 2, "--checkpoints", "deep/epochs", "--out", "last.safetensors", "--json")
    status, out, err = run("train", "digits", *arguments)
    assert status == 0
    assert "3 networks in deep/epochs, epoch_000.onnx to epoch_002.onnx" in err
    facts = json.loads(out)
    assert facts["method"] == "normal"
    assert len(facts["losses"]) == 2
    names = sorted(p.name for p in (tmp_path / "deep/epochs").iterdir())
    assert names == ["epoch_000.onnx", "epoch_001.onnx", "epoch_002.onnx"]
    from safetensors.torch import load_file

    from exactline.zoo.robust import RobustNetwork

    last = RobustNetwork().eval()
    last.load_state_dict(load_file(tmp_path / "last.safetensors"))
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        want = last.double()(x)
        torch.testing.assert_close(xl.load(tmp_path / "deep/epochs/epoch_002.onnx")(x), want, rtol=0, atol=1e-9)
    first = xl.load(tmp_path / "deep/epochs/epoch_000.onnx")(x)
    assert (first - want).abs().max() > 0.1


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--method", "magic"), 2, "no training method 'magic'"),
        (("--epochs", 0), 2, "epochs must be a whole number"),
        (("--seed", -1), 2, "seed must be a whole number"),
        (("--radius", 3), 2, "radius must be from 0 to 1"),
        (("--radius", "nan"), 2, "radius must be from 0 to 1"),
        (("--out", "net.pt"), 6, "Files are .onnx"),
        (("--out", "missing/net.onnx"), 6, "folder does not exist"),
        (("--checkpoints", "loan.nnet"), 6, "folder cannot be made"),
    ],
)
def test_training_that_cannot_be_is_refused_at_once(run, arguments, status, words):
    found, out, err = run("train", "digits", *arguments)
    assert (found, out) == (status, "")
    assert words in err
    assert "Traceback" not in err


def test_densities_of_one_s_own_networks_and_images(run, files):
    arguments = ("--networks", "one.onnx", "two.onnx", "--data", "images.npz", "--scale", 255, "--random", 2)
    status, out, err = run("study", "density", *arguments, "--checkpoints", "two.onnx", "one.onnx", "--out", "out")
    assert (status, err) == (0, "")
    assert "breaks for each unit of length" in out
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


def test_with_no_arguments_our_own_three_are_studied(run, tmp_path):
    status, out, err = run("study", "density", "--images", 2, "--reach", 0)
    assert (status, err) == (0, "")
    for name in ("normal", "pgd", "diffai"):
        assert name in out
    assert not (tmp_path / "kept").exists()


def test_densities_say_the_same_as_json(run, files):
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


def test_an_option_may_be_said_several_times_too(run, files):
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
        (("--networks", "one.onnx", "--data", "loan.nnet"), 6, "not read from such files"),
        (("--networks", "one.onnx", "--data", "images.npz", "--scale", 0), 2, "scale must be above 0"),
        (("--checkpoints", "one.onnx"), 2, "takes images of shape (4,)"),
        (("--perturb", "magic"), 2, "no perturbation 'magic'"),
        (("--eps", -1), 2, "eps cannot be -1.0"),
        (("--clip", "0"), 2, "not a range"),
        (("--clip", "1,0"), 2, "low cannot be 1.0"),
        (("--random", 0), 2, "random cannot be 0"),
        (("--images", 0), 2, "no 0 images"),
        (("--reach", -2), 2, "reach cannot be -2.0"),
        (("--out", "loan.nnet"), 6, "folder cannot be made"),
    ],
)
def test_studies_that_cannot_be_are_refused(run, files, arguments, status, words):
    found, out, err = run("study", "density", *arguments)
    assert (found, out) == (status, ""), err
    assert words in err
    assert "Traceback" not in err

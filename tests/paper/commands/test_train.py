"""The command train digits: what it writes, prints and refuses."""

import json

import pytest
import torch

import exactline as xl
from exactline.paper.training import attack


@pytest.fixture(autouse=True)
def _weak_attack(monkeypatch):
    """The strength of the attack does not matter here."""
    monkeypatch.setattr(attack, "ATTACK_STEPS", 2)
    monkeypatch.setattr(attack, "ATTACK_RESTARTS", 1)


def test_a_network_is_trained_saved_and_measured(run, tmp_path):
    status, out, err = run("train", "digits", "--method", "diffai", "--epochs", 1, "--seed", 2, "--out", "net.onnx")
    assert status == 0
    assert err == "saved to net.onnx\n"
    for words in (
        "diffai, seed 2, 1 epoch",
        "classified correctly",
        "withstand PGD within 0.1",
        "certified by interval bounds",
    ):
        assert words in out
    network = xl.load(tmp_path / "net.onnx")
    assert (network.input_shape, network.output_shape) == ((1, 8, 8), (10,))


@pytest.mark.slow
def test_checkpoints_are_networks_in_order_and_the_last_is_the_result(run, tmp_path):
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
        (("--out", "net.pt"), 6, "must end in .onnx"),
        (("--out", "missing/net.onnx"), 6, "folder does not exist"),
        (("--checkpoints", "loan.nnet"), 6, "folder cannot be created"),
    ],
)
def test_invalid_training_is_refused_at_once(run, arguments, status, words):
    found, out, err = run("train", "digits", *arguments)
    assert (found, out) == (status, "")
    assert words in err
    assert "Traceback" not in err

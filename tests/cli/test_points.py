"""Points on the command line: conversions are told, and nothing is bent without being asked."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from exactline.network import as_network


@pytest.fixture
def images(tmp_path):
    """A network for images of 3 by 8 by 8, one for 8 by 8 in grey, and pictures and arrays for them."""
    pillow = pytest.importorskip("PIL.Image")
    torch.manual_seed(0)
    colour = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)).eval()
    grey = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)).eval()
    as_network(colour, [torch.zeros(3, 8, 8)]).save(tmp_path / "colour.onnx")
    as_network(grey, [torch.zeros(1, 8, 8)]).save(tmp_path / "grey.onnx")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "fits.png")
    pillow.fromarray(np.kron(pixels, np.ones((8, 8, 1), np.uint8))).save(tmp_path / "large.png")
    pillow.fromarray(pixels).convert("L").save(tmp_path / "grey.png")
    pillow.fromarray(pixels).convert("RGBA").save(tmp_path / "alpha.png")
    np.save(tmp_path / "hwc.npy", pixels / 255)
    np.save(tmp_path / "chw.npy", np.moveaxis(pixels, 2, 0) / 255)
    np.save(tmp_path / "bytes.npy", np.moveaxis(pixels, 2, 0))
    np.save(tmp_path / "floats.npy", np.moveaxis(pixels, 2, 0).astype(float))
    np.save(tmp_path / "large.npy", np.full((3, 64, 64), 0.5))
    return pixels


COMMANDS = {
    "restrict": ("restrict", "{}", "--to", "chw.npy", "--from"),
    "decide": ("decide", "{}", "--to", "chw.npy", "--from"),
    "attribute": ("attribute", "{}", "--baseline", "chw.npy", "--target", "0", "--input"),
}
RESIZED = "resized from 64 by 64 to 8 by 8 pixels (height by width)"


@pytest.mark.parametrize(
    ("network", "file", "expected"),
    [
        ("colour.onnx", "fits.png", []),
        ("colour.onnx", "large.png", [RESIZED]),
        ("colour.onnx", "grey.png", ["recoloured from grey to colour"]),
        ("colour.onnx", "alpha.png", ["recoloured from colour with alpha to colour, without its alpha channel"]),
        ("grey.onnx", "fits.png", ["recoloured from colour to grey"]),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.every(5)
def test_conversions_of_images_are_told_and_in_the_document(run, images, network, file, expected):
    expected = [*expected, "divided by 255"]
    status, out, err = run("restrict", network, "--from", file, "--to", file, "--json")
    assert status == 0
    told = [{"option": o, "point": file, "conversion": c} for o in ("--from", "--to") for c in expected]
    assert json.loads(out)["conversions"] == told
    assert err.splitlines() == [f"{option} {file}: {', '.join(expected)}" for option in ("--from", "--to")]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.every(3)
def test_all_commands_tell_conversions(run, images, command):
    arguments = [part.format("colour.onnx") for part in COMMANDS[command]]
    status, out, err = run(*arguments, "large.png", "--json")
    assert status == 0
    document = json.loads(out)
    assert [entry["conversion"] for entry in document["conversions"]] == [RESIZED, "divided by 255"]
    assert document["warnings"] == []
    assert RESIZED in err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("file", "option"), [("hwc.npy", "--layout hwc"), ("bytes.npy", "--scale 255"), ("large.npy", "--resize")]
)
@pytest.mark.every(8)
def test_arrays_are_refused_until_the_option_is_given(run, images, command, file, option):
    arguments = [part.format("colour.onnx") for part in COMMANDS[command]]
    status, out, err = run(*arguments, file)
    assert (status, out) == (2, "")
    assert option in err.splitlines()[-1]


@pytest.mark.parametrize(("file", "options"), [("hwc.npy", ("--layout", "hwc")), ("bytes.npy", ("--scale", "255"))])
@pytest.mark.every(2)
def test_options_make_the_same_point(run, images, file, options):
    plain = run("attribute", "colour.onnx", "--input", "chw.npy", "--json", "--target", "1")[1]
    status, out, err = run("attribute", "colour.onnx", "--input", file, "--json", "--target", "1", *options)
    assert (status, err != "") == (0, True)
    assert json.loads(out)["attributions"] == json.loads(plain)["attributions"]


def test_mean_and_std_normalize_all_points(run, images, tmp_path):
    mean, std = np.array([0.4, 0.5, 0.6]), np.array([0.2, 0.25, 0.3])
    np.save(tmp_path / "normal.npy", np.moveaxis((images / 255 - mean) / std, 2, 0))
    expected = json.loads(run("attribute", "colour.onnx", "--input", "normal.npy", "--json", "--target", "1")[1])
    options = ("--mean", "0.4,0.5,0.6", "--std", "0.2,0.25,0.3")
    found = run("attribute", "colour.onnx", "--input", "fits.png", "--json", "--target", "1", *options)[1]
    assert np.allclose(json.loads(found)["attributions"], expected["attributions"], rtol=0, atol=1e-13)
    assert "mean 0.4, 0.5, 0.6 subtracted" in found
    for bad in (("--mean", "a"), ("--mean", "1,2"), ("--std", "0"), ("--layout", "x"), ("--scale", "-1")):
        status, _, err = run("restrict", "colour.onnx", "--from", "fits.png", "--to", "fits.png", *bad)
        assert (status, bad[0] in err) == (2, True), bad


def test_far_ranges_are_warned_of(run, images):
    status, out, err = run("restrict", "colour.onnx", "--from", "floats.npy", "--to", "chw.npy", "--json")
    assert status == 0
    (warning,) = json.loads(out)["warnings"]
    assert warning.startswith("the values of --from are ")
    assert err == f"warning: {warning}\n"


def test_a_point_with_a_batch_dimension_of_one_is_that_point(run, images, tmp_path):
    np.save(tmp_path / "batch.npy", np.load(tmp_path / "chw.npy")[None])
    documents = []
    for name in ("chw.npy", "batch.npy"):
        status, out, err = run("restrict", "colour.onnx", "--from", name, "--to", "grey.png", "--json")
        assert (status, "grey.png" in err) == (0, True)
        documents.append(json.loads(out))
    assert documents[0]["values"] == documents[1]["values"]
    assert np.shape(documents[1]["values"])[1:] == (3,)

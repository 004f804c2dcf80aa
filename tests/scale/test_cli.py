"""The command: the same store as the library's, a status of it, and errors in three lines."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import exactline as xl
from exactline.cli import app
from tests.scale.same import assert_same, small_network, some_lines


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    xl.network.as_network(small_network(), [torch.zeros(5)]).save(folder / "small.onnx")
    starts, ends = (side.numpy() for side in some_lines(200))
    starts[3, 1] = np.nan
    np.savez(folder / "lines.npz", starts=starts, ends=ends)
    return folder


def say(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_run_and_its_status(files, tmp_path):
    given = (files / "small.onnx", "--lines", files / "lines.npz", "--out", tmp_path / "store")
    document = json.loads(say("scale", "restrict", *given, "--json"))
    assert (document["lines"], document["done"], document["complete"], document["failed"]) == (200, 200, True, 1)
    assert "NaN" in document["errors"]["3"]["problem"]
    store = xl.scale.open(tmp_path / "store")
    network = xl.load(files / "small.onnx")
    starts, ends = some_lines(200)
    keep = [n for n in range(128) if n != 3]
    for number, line in zip(keep, xl.restrict_many(network, starts[keep], ends[keep]), strict=True):
        assert_same(store[number], line)
    assert json.loads(say("scale", "status", tmp_path / "store", "--json")) == document
    text = say("scale", "status", tmp_path / "store", "--export", tmp_path / "all.parquet")
    assert "200 of 200 lines" in text
    assert "finished" in text
    assert "Q holds NaN" in text
    assert (tmp_path / "all.parquet").is_file()


@pytest.mark.parametrize(
    ("job", "options"), [("decide", ("--order", "min")), ("attribute", ("--target", "1")), ("density", ())]
)
def test_other_jobs(files, tmp_path, job, options):
    given = (files / "small.onnx", "--lines", files / "lines.npz", "--out", tmp_path, "--json", *options)
    assert json.loads(say("scale", job, *given))["complete"]


def test_status_names_what_is_damaged(files, tmp_path):
    say("scale", "restrict", files / "small.onnx", "--lines", files / "lines.npz", "--out", tmp_path)
    victim = next((tmp_path / "shards").iterdir())
    victim.write_bytes(victim.read_bytes()[:-1])
    text = say("scale", "status", tmp_path)
    assert f"damaged: {victim.name}" in text
    assert "not finished" in text


def test_errors_are_ours(files, tmp_path):
    def refused(*arguments: object) -> xl.ExactlineError:
        with pytest.raises(xl.ExactlineError) as caught:
            CliRunner().invoke(app, ["scale", *map(str, arguments)], catch_exceptions=False)
        return caught.value

    given = ("restrict", files / "small.onnx", "--lines", files / "lines.npz", "--out", tmp_path)
    assert refused("status", tmp_path).exit_status == 6
    assert refused(*given, "--workers", 2).exit_status == 2
    assert (
        refused("restrict", files / "small.onnx", "--lines", tmp_path / "none.npz", "--out", tmp_path).exit_status == 6
    )
    assert refused(*given, "--memory", "much").exit_status == 2

"""``exactline scale``: writes the same store as the library, reports its status, and raises typed errors."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import exactline as xl
from exactline.cli import app
from tests.scale.examples import assert_same, random_lines, small_network


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    xl.network.as_network(small_network(), [torch.zeros(5)]).save(folder / "small.onnx")
    starts, ends = (side.numpy() for side in random_lines(200))
    starts[3, 1] = np.nan
    np.savez(folder / "lines.npz", starts=starts, ends=ends)
    return folder


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_run_and_its_status(files, tmp_path):
    arguments = (files / "small.onnx", "--lines", files / "lines.npz", "--out", tmp_path / "store")
    document = json.loads(run("scale", "restrict", *arguments, "--json"))
    assert (document["lines"], document["done"], document["complete"], document["failed"]) == (200, 200, True, 1)
    assert "NaN" in document["errors"]["3"]["problem"]
    store = xl.scale.open(tmp_path / "store")
    network = xl.load(files / "small.onnx")
    starts, ends = random_lines(200)
    keep = [n for n in range(128) if n != 3]
    for number, line in zip(keep, xl.restrict_many(network, starts[keep], ends[keep]), strict=True):
        assert_same(store[number], line)
    assert json.loads(run("scale", "status", tmp_path / "store", "--json")) == document
    text = run("scale", "status", tmp_path / "store", "--export", tmp_path / "all.parquet")
    assert "200 of 200 lines" in text
    assert "finished" in text
    assert "start holds NaN" in text
    assert (tmp_path / "all.parquet").is_file()


@pytest.mark.parametrize(
    ("job", "options"), [("decide", ("--order", "min")), ("attribute", ("--target", "1")), ("density", ())]
)
def test_other_jobs(files, tmp_path, job, options):
    arguments = (files / "small.onnx", "--lines", files / "lines.npz", "--out", tmp_path, "--json", *options)
    assert json.loads(run("scale", job, *arguments))["complete"]


def test_status_names_what_is_damaged(files, tmp_path):
    run("scale", "restrict", files / "small.onnx", "--lines", files / "lines.npz", "--out", tmp_path)
    victim = next((tmp_path / "shards").iterdir())
    victim.write_bytes(victim.read_bytes()[:-1])
    text = run("scale", "status", tmp_path)
    assert f"damaged: {victim.name}" in text
    assert "not finished" in text


def test_errors_are_typed(files, tmp_path):
    def run_refused(*arguments: object) -> xl.ExactlineError:
        with pytest.raises(xl.ExactlineError) as caught:
            CliRunner().invoke(app, ["scale", *map(str, arguments)], catch_exceptions=False)
        return caught.value

    arguments = ("restrict", files / "small.onnx", "--lines", files / "lines.npz", "--out", tmp_path)
    assert run_refused("status", tmp_path).exit_status == 6
    assert run_refused(*arguments, "--workers", 2).exit_status == 2
    assert (
        run_refused("restrict", files / "small.onnx", "--lines", tmp_path / "none.npz", "--out", tmp_path).exit_status
        == 6
    )
    assert run_refused(*arguments, "--memory", "much").exit_status == 2

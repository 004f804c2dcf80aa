"""The commands that read files and write others: info and convert."""

import json
from importlib.util import find_spec

import pytest
import torch

import exactline as xl
from tests.cli.running import FILES, LOAN


def test_info_shows_layers_and_a_verdict(run):
    status, out, err = run("info", "loan.nnet")
    assert (status, err) == (0, "")
    assert out.startswith("loan.nnet: 2 -> 2, 2 relu units, ")
    relu = next(row for row in out.splitlines() if "layer_1.relu" in row)
    assert [cell.strip() for cell in relu.split("│")[1:-1]] == ["layer_1.relu", "relu", "breaking", "2", "2"]
    assert out.endswith("can be restricted exactly\n")


def test_info_counts_the_weights_of_bare_layers(run):
    (entry,) = json.loads(run("info", "--no-normalize", "--json", "loan.nnet")[1])
    assert entry["weights"] == 2 * (4 + 2)
    assert entry["units"] == {"relu": 2}
    assert [layer["kind"] for layer in entry["layers"]] == ["input", "affine", "breaking", "affine"]


def test_info_shows_a_tail(run):
    layers = json.loads(run("info", "--json", "tailed.eran")[1])[0]["layers"]
    assert (layers[-1]["operator"], layers[-1]["kind"], layers[-1]["shape"]) == ("sigmoid", "tail", [1])


def test_info_names_every_operator_that_is_not_supported(run):
    status, out, err = run("info", "smooth.eran")
    assert (status, err) == (3, "")
    refused = [row for row in out.splitlines() if row.startswith("  not supported: ")]
    assert len(refused) == 2
    assert "sigmoid" in refused[0]
    assert "tanh" in refused[1]
    assert out.splitlines()[-1].startswith("cannot: 2 operators are not piecewise linear")


def test_info_on_one_damaged_file_is_an_error(run):
    status, out, err = run("info", "torn.nnet")
    assert (status, out) == (6, "")
    assert "  where: " in err


def test_info_on_a_folder_continues_after_errors(run, tmp_path):
    (tmp_path / "notes.txt").write_text("not a network")
    status, out, err = run("info", tmp_path)
    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in out.splitlines() if row.startswith("│")]
    assert [row[0].rpartition("/")[2] for row in rows] == sorted(FILES)
    assert rows[0][1:] == ["2", "2", "8", "2", "can be restricted exactly"]
    assert [row[-1].partition(":")[0] for row in rows].count("cannot") == 2
    assert (status, err) == (3, "")  # of the first that cannot


def test_info_as_json_distinguishes_errors(run):
    status, out, _ = run("info", "--json", "loan.nnet", "torn.nnet", "smooth.eran", "missing.onnx")
    entries = json.loads(out)
    assert [entry["exact"] for entry in entries] == [True, False, False, False]
    assert [entry["error"]["code"] for entry in entries[1:]] == ["file", "unsupported", "file"]
    assert len(entries[2]["unsupported"]) == 2
    assert status == 6


def test_info_on_an_empty_folder_says_so(run, tmp_path):
    (tmp_path / "empty").mkdir()
    status, _, err = run("info", "empty")
    assert status == 6
    assert "contains no networks" in err


@pytest.mark.parametrize("ending", ["onnx", "eran"])
def test_convert_writes_the_same_function(run, tmp_path, ending):
    if find_spec(f"exactline.formats.{ending}_writer") is None:
        pytest.skip("the format has no writer")
    status, out, err = run("convert", "scaled.nnet", f"new.{ending}")
    assert (status, err) == (0, "")
    assert out.startswith(f"wrote new.{ending}: ")
    assert f"{(tmp_path / f'new.{ending}').stat().st_size:,} bytes" in out
    x = torch.tensor([[20.0, 30.0], [-4.0, 7.5]], dtype=torch.float64)
    assert torch.allclose(xl.load(f"new.{ending}")(x), xl.load("scaled.nnet")(x), rtol=1e-12, atol=1e-12)
    status, _, err = run("convert", "scaled.nnet", f"new.{ending}")
    assert status == 6
    assert "--force" in err
    assert run("convert", "scaled.nnet", f"new.{ending}", "--force")[0] == 0


def test_convert_checks_its_target_before_it_reads(run, tmp_path):
    assert run("convert", "missing.nnet", "loan.nnet")[2].startswith("The file exists already.")
    assert run("convert", "missing.nnet", "nowhere/new.onnx")[2].startswith("Its folder does not exist.")
    assert (tmp_path / "loan.nnet").read_text() == LOAN

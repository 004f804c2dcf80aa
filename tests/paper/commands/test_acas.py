"""The command study acas: pictures and tables in a folder."""

import csv
import json
import sys
from math import pi
from pathlib import Path

import pytest
import torch
from torch import nn

import exactline as xl
from exactline import paper
from exactline.network import as_network
from tests.paper.acas.solved_by_hand import Rings

TABLES = ["lines.csv", "missed.csv", "report.md"]
MAP_TABLES = ["areas.csv", "regions.csv", "report.md"]


@pytest.fixture
def rings(run, tmp_path):
    """The network solved by hand, as a file that takes feet."""
    as_network(Rings().eval(), [torch.zeros(5)]).save(tmp_path / "rings.onnx")
    return ("--network", "rings.onnx", "--no-normalize")


@pytest.mark.slow
def test_all_pictures_and_tables_are_written(run, tmp_path):
    status, out, err = run("study", "acas", "--out", "deep/folder")
    assert (status, err) == (0, "")
    assert "not ACAS Xu" in out
    assert "17 files in deep/folder" in out
    found = sorted(p.name for p in (tmp_path / "deep/folder").iterdir())
    assert len(found) == 17
    assert [name for name in found if not name.endswith((".png", ".svg"))] == TABLES
    for path in (tmp_path / "deep/folder").iterdir():
        head = path.read_bytes()[:8]
        assert head == b"\x89PNG\r\n\x1a\n" if path.suffix == ".png" else head


def test_a_given_network_is_studied(run, tmp_path, rings):
    status, out, err = run("study", "acas", *rings, "--out", "out", "--no-pictures", "--psi", 90, "--v-own", 50)
    assert status == 0
    assert err == "v_own leaves its range (50 to 50) and was clipped.\n"
    assert "rings.onnx; inputs are not normalized" in out
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == TABLES
    with (tmp_path / "out/lines.csv").open() as file:
        single = [row for row in csv.DictReader(file) if row["kind"] == "single distance"]
    assert [row["advisory"] for row in single] == ["weak left", "strong left", "weak left", "clear of conflict"]
    assert float(single[1]["start"]) == pytest.approx(2995)
    assert "psi = 90 degrees, v_own = 50 ft/s" in (tmp_path / "out/report.md").read_text()


def test_a_second_study_replaces_the_files(run, tmp_path, rings):
    for psi in (0, 45):
        assert run("study", "acas", *rings, "--out", "out", "--no-pictures", "--psi", psi)[0] == 0
    assert "psi = 45 degrees" in (tmp_path / "out/report.md").read_text()
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == TABLES


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--psi", "nan"), 2, "psi must be a finite number"),
        (("--psi", "270"), 2, "from -180 to 180 degrees"),
        (("--v-int", "-3"), 2, "v_int must be at least 0"),
        (("--network", "loan.nnet"), 2, "5 inputs and 5 outputs; this one has 2 and 2"),
        (("--network", "torn.nnet"), 6, "torn.nnet"),
        (("--network", "absent.onnx"), 6, "absent.onnx"),
        (("--network", "smooth.eran"), 3, "Sigmoid"),
    ],
)
def test_invalid_studies_are_refused(run, arguments, status, words):
    found, out, err = run("study", "acas", "--out", "out", *arguments)
    assert (found, out) == (status, "")
    assert words.lower() in err.lower()
    assert "try:" in err


def test_a_folder_that_is_a_file_is_refused(run):
    status, _, err = run("study", "acas", "--out", "loan.nnet")
    assert status == 6
    assert "--out loan.nnet" in err


def test_a_network_that_ends_in_a_smooth_operator_is_refused(run, tmp_path):
    as_network(nn.Sequential(nn.Linear(5, 5), nn.Softmax(1)).eval(), [torch.zeros(5)]).save(tmp_path / "soft.onnx")
    status, _, err = run("study", "acas", "--out", "out", "--network", "soft.onnx")
    assert status == 3
    assert "not costs" in err


def test_missing_matplotlib_is_named(run, tmp_path, monkeypatch):
    monkeypatch.setattr("exactline.console.output.find_spec", lambda name: None)
    status, _, err = run("study", "acas", "--out", "out")
    assert status == 5
    assert "exactline[plot]" in err
    assert not (tmp_path / "out").exists()
    assert run("study", "acas", "--out", "out", "--no-pictures")[0] == 0


def test_help_is_shown_with_and_without_a_command(run):
    for arguments in (("study", "--help"), ("study", "acas", "--help")):
        status, out, _ = run(*arguments)
        assert status == 0
        assert "acas" in out


def test_json_agrees_with_the_study(run, tmp_path, rings):
    status, out, err = run("study", "acas", *rings, "--out", "out", "--no-pictures", "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert [Path(name).name for name in found["files"]] == TABLES
    study = paper.acas.lines.run(xl.load("rings.onnx"), normalize=False)
    assert found["missed"] == len(study.missed)
    for kind, row in found["lines"].items():
        assert (row["mean"], row["least"], row["most"]) == study.break_statistics(kind)
        assert row["count"] == len(study.lines_of(kind))


def test_json_agrees_with_the_maps(run, rings):
    arguments = (*rings, "--plane", "--psi", "90", "--out", "out", "--no-pictures", "--json")
    found = json.loads(run("study", "acas", *arguments)[1])
    (one,) = found["scenarios"]
    assert (one["psi"], one["v_own"]) == (90, 150)
    assert sum(one["square_feet"].values()) == pytest.approx(pi * found["rho"] ** 2)


@pytest.mark.slow
def test_the_command_maps_one_encounter(run, tmp_path):
    status, out, err = run("study", "acas", "--plane", "--psi", 90, "--rho", 70000, "--out", "maps")
    assert (status, err) == (0, "rho leaves its range (0 to 70000) and was clipped.\n")
    assert "not ACAS Xu" in out
    assert "psi 90°, ownship 150 ft/s, intruder 150 ft/s" in out
    names = [f"psi90_own150_int150.{kind}" for kind in ("png", "svg")]
    assert sorted(p.name for p in (tmp_path / "maps").iterdir()) == sorted([*MAP_TABLES, *names])


@pytest.mark.slow
def test_the_command_maps_eight_encounters(run, tmp_path):
    status, out, err = run("study", "acas", "--plane", "--no-pictures", "--out", "maps")
    assert (status, err) == (0, "")
    assert out.count("ownship 150 ft/s") == out.count("ownship 500 ft/s") == 4
    assert "3 files in maps" in out
    assert sorted(p.name for p in (tmp_path / "maps").iterdir()) == MAP_TABLES


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--rho", 5000), 2, "--rho is an option of maps"),
        (("--plane", "--rho", -1), 2, "more than 0"),
        (("--plane", "--rho", "nan"), 2, "more than 0"),
        (("--plane", "--psi", 270), 2, "from -180 to 180 degrees"),
        (("--plane", "--network", "loan.nnet"), 2, "5 inputs and 5 outputs"),
        (("--plane", "--network", "absent.nnet"), 6, "absent.nnet"),
    ],
)
def test_invalid_maps_are_refused(run, arguments, status, words):
    found, out, err = run("study", "acas", "--out", "out", *arguments)
    assert (found, out) == (status, "")
    assert words in err
    assert "try:" in err


def test_without_matplotlib_there_are_tables(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("study", "acas", "--plane", "--psi", 0, "--no-pictures", "--out", "out")[0] == 0

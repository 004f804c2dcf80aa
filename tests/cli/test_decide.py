"""The command decide: which output leads where, for networks in files."""

import csv
import json

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network

LINE = ("--from", "20,30", "--to", "30,50")  # the paper's line


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    plt.close("all")


def test_the_loan_network_agrees_with_the_solution_by_hand(run):
    # the leading output changes where -1.7 x + y + 3 = 2 x - 1.3 y + 3
    status, out, err = run("decide", "loan.nnet", *LINE, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    line = xl.restrict(xl.load("loan.nnet"), [20.0, 30.0], [30.0, 50.0])
    assert found["boundaries"] == line.decisions().boundaries.tolist()
    assert [i["label"] for i in found["intervals"]] == line.decisions().labels
    assert found["intervals"][0]["point"] == [20.0, 30.0]
    assert found["intervals"][0]["start"] == 0.0
    assert found["intervals"][-1]["stop"] == 1.0
    assert found["complete"] is True
    for boundary in found["boundaries"]:
        first, second = line.at(boundary).tolist()
        assert first == pytest.approx(second, abs=1e-12)


def test_the_table_has_names_and_points(run):
    status, out, _ = run("decide", "loan.nnet", *LINE, "--labels", "no, [b]yes", "--order", "min")
    assert status == 0
    assert "the smallest output decides" in out
    assert "[b]yes" in out  # not markup
    assert "(20, 30)" in out


def test_numbers_in_the_csv_are_read_back_unchanged(run, tmp_path):
    status, _, err = run("decide", "loan.nnet", *LINE, "--out", "a.csv", "--top", "2")
    assert (status, err) == (0, "saved to a.csv\n")
    decided = xl.restrict(xl.load("loan.nnet"), [20.0, 30.0], [30.0, 50.0]).decisions(top=2)
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [float(r["start"]) for r in rows] == [i.start for i in decided]
    assert [r["label"] for r in rows] == [" > ".join(map(str, i.label)) for i in decided]
    assert rows[0]["margin"] == "inf"
    assert (float(rows[0]["x0"]), float(rows[0]["x1"])) == (20.0, 30.0)


def test_a_band_is_drawn(run, tmp_path):
    status, _, err = run("decide", "loan.nnet", *LINE, "--plot", "band.png")
    assert (status, err) == (0, "drawn to band.png\n")
    assert (tmp_path / "band.png").stat().st_size > 5_000


def test_a_stopped_line_says_so(run):
    status, out, _ = run("decide", "loan.nnet", *LINE, "--max-breaks", "2")
    assert status == 0
    assert "stopped by max_breaks at alpha" in out


def test_long_points_and_tables_are_shortened(run, tmp_path):
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(300, 30), nn.ReLU(), nn.Linear(30, 3)).eval()
    as_network(wide, [torch.zeros(300)]).save(tmp_path / "wide.onnx")
    for name, size in (("q", -3.0), ("r", 3.0)):
        (tmp_path / f"{name}.csv").write_text(",".join(str(size * (i % 7 - 3)) for i in range(300)) + "\n")
    status, out, err = run("decide", "wide.onnx", "--from", "q.csv", "--to", "r.csv", "--out", "a.csv")
    assert status == 0, err
    assert "starts at" not in out
    assert "300 coordinates: they are left out" in err
    assert "x0" not in (tmp_path / "a.csv").read_text()


def test_points_with_some_features_show_those_that_change_most(run, tmp_path):
    torch.manual_seed(0)
    table = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    as_network(table, [torch.zeros(12)]).save(tmp_path / "table.onnx")
    ends = ("--from", ",".join(["0"] * 12), "--to", ",".join(map(str, range(12))))
    status, out, err = run("decide", "table.onnx", *ends)
    assert status == 0, err
    assert "x[11] = 0" in out
    assert "7 more" in out


@pytest.mark.parametrize(
    ("options", "status", "word"),
    [
        (("--labels", "a,b,c"), 2, "3 names for 2 outputs"),
        (("--order", "most"), 2, "order"),
        (("--top", "3"), 2, "top"),
        (("--output", "1"), 2, "no output 1"),
        (("--out", "a.txt"), 2, ".csv"),
        (("--out", "none/a.csv"), 6, "folder"),
        (("--plot", "a.bmp"), 2, ".png"),
        (("--memory", "much"), 2, "memory"),
    ],
)
def test_invalid_options_are_refused(run, options, status, word):
    ended, out, err = run("decide", "loan.nnet", *LINE, *options)
    assert (ended, out) == (status, "")
    assert word in err
    assert "Traceback" not in err


def test_one_output_is_decided_by_a_threshold(run, tmp_path):
    (tmp_path / "one.eran").write_text("Affine\n[[2]]\n[-1]\n")
    line = ("decide", "one.eran", "--from", "0", "--to", "1")
    status, out, err = run(*line)
    assert (status, out) == (2, "")
    assert "single output has no rival" in err
    assert "threshold" in err
    status, out, _ = run(*line, "--threshold", "0.5", "--json")
    document = json.loads(out)
    assert (status, document["threshold"], document["boundaries"]) == (0, 0.5, [0.75])
    assert [i["label"] for i in document["intervals"]] == [0, 1]
    status, out, _ = run(*line, "--threshold", "0.5", "--labels", "low,high")
    assert status == 0
    assert "class 1 where the output is above 0.5" in out
    assert "high" in out


def test_behind_a_sigmoid_the_threshold_is_implied(run):
    status, out, _ = run("decide", "tailed.eran", "--from", "0,0", "--to", "1,0", "--json")
    assert (status, json.loads(out)["threshold"]) == (0, 0.5)


def test_only_rivals_are_compared(run):
    status, out, _ = run("decide", "loan.nnet", *LINE, "--rivals", "0", "--threshold", "1", "--json")
    assert (status, json.loads(out)["threshold"]) == (0, 1.0)
    status, out, _ = run("decide", "loan.nnet", *LINE, "--rivals", "1,0")
    assert (status, "the largest output of 1, 0 decides" in out) == (0, True)
    for bad in ("a", "0,5", "0,0"):
        status, _, err = run("decide", "loan.nnet", *LINE, "--rivals", bad)
        assert (status, "rivals" in err) == (2, True)

"""The command restrict: what it prints, saves and draws, and what it refuses."""

import json

import pytest
import torch

import exactline as xl
from exactline.network import as_network


def test_restrict_prints_the_line_and_its_nodes(run):
    status, out, err = run("restrict", "loan.nnet", "--from", "20,30", "--to", "30,50")
    assert (status, err) == (0, "")
    assert out.startswith("3 pieces in ")
    assert "layer_1.relu │      2 │" in out


def test_restrict_as_json_agrees_with_the_library(run):
    status, out, err = run("restrict", "loan.nnet", "--from", "20,30", "--to", "30,50", "--json")
    assert (status, err) == (0, "")
    found, line = json.loads(out), xl.restrict(xl.load("loan.nnet"), [20.0, 30.0], [30.0, 50.0])
    assert found["alphas"] == line.alphas.tolist()
    assert found["values"] == line.values.tolist()
    assert found["origins"] == [b and vars(b) for b in line.origins]
    assert (found["pieces"], found["complete"]) == (3, True)


def test_restrict_certifies_pieces_and_values(run):
    ends = ("--from", "20,30", "--to", "30,50")
    found = json.loads(run("restrict", "loan.nnet", *ends, "--certify", "all", "--json")[1])["certificate"]
    assert (found["complete"], found["proved"], found["confirmed"]) == (True, 3, 2)
    assert found["values_proved"] == found["values_checked"] == 4 * 2
    assert (found["values_unchecked"], found["failures"]) == (0, [])
    assert found["max_value_error"] <= 1e-13
    status, out, _ = run("restrict", "loan.nnet", *ends, "--certify", "1")
    assert status == 0
    assert "proved: 1 of 1 pieces are right" in out
    assert "4 of 4 values are right" in out
    assert "ambiguous units were not checked" in out
    bare = json.loads(run("restrict", "loan.nnet", *ends, "--certify", "all", "--no-values", "--json")[1])
    assert (bare["certificate"]["complete"], bare["certificate"]["values_checked"]) == (True, 0)


@pytest.mark.parametrize(
    "options", [("--certify", "0"), ("--certify", "some"), ("--certify", "all", "--max-breaks", "1")]
)
def test_restrict_refuses_what_it_cannot_certify(run, options):
    status, _, err = run("restrict", "loan.nnet", "--from", "20,30", "--to", "30,50", *options)
    assert status == 2
    assert "certify" in err


@pytest.mark.parametrize("ends", [("--from", "-1,2", "--to", "-3,-4"), ("--from=-1,2", "--to=-3,-4")])
def test_restrict_takes_negative_numbers(run, ends):
    found = json.loads(run("restrict", "loan.nnet", *ends, "--json", "--no-values")[1])
    assert found["alphas"] == pytest.approx([0, 8 / 19, 1])  # 2 x - 1.3 y + 3 is 0 there
    assert "values" not in found


def test_restrict_can_stop_at_a_layer_or_early(run):
    ends = ("--from", "20,30", "--to", "30,50", "--json")
    inner = json.loads(run("restrict", "loan.nnet", *ends, "--until", "layer_1.linear")[1])
    assert inner["alphas"] == [0, 1]
    early = json.loads(run("restrict", "loan.nnet", *ends, "--max-breaks", "1", "--memory", "1K")[1])
    assert (early["complete"], early["stopped"]) == (False, "max_breaks")
    status, _, err = run("restrict", "loan.nnet", *ends, "--until", "nowhere")
    assert status == 2
    assert "layer_2.linear" in err


def test_restrict_takes_an_engine_and_says_which_one_ran(run):
    ends = ("--from", "20,30", "--to", "30,50", "--json")
    chosen = json.loads(run("restrict", "loan.nnet", *ends)[1])
    forced = json.loads(run("restrict", "loan.nnet", *ends, "--engine", "patches")[1])
    assert chosen["engine"].startswith("dense (no feature maps")
    assert forced["engine"].startswith("patches (requested")
    assert forced["origins"] == chosen["origins"]
    assert forced["alphas"] == pytest.approx(chosen["alphas"], abs=1e-11)
    status, _, err = run("restrict", "loan.nnet", *ends, "--engine", "quick")
    assert status == 2
    assert "no engine 'quick'" in err


def test_restrict_applies_or_ignores_the_normalization_of_a_nnet_file(run):
    ends = ("--from", "20,30", "--to", "30,50", "--json")
    scaled, bare, loan = (
        json.loads(run("restrict", *which, *ends)[1])["values"]
        for which in (["scaled.nnet"], ["scaled.nnet", "--no-normalize"], ["loan.nnet"])
    )
    assert bare == loan != scaled


def test_restrict_saves_draws_and_prints_json_alone(run, tmp_path):
    pytest.importorskip("matplotlib")
    arguments = ("restrict", "loan.nnet", "--from", "20,30", "--to", "30,50", "--json")
    status, out, err = run(*arguments, "--out", "line.safetensors", "--plot", "line.png")
    assert status == 0
    assert json.loads(out)["pieces"] == 3
    assert err == "saved to line.safetensors\ndrawn to line.png\n"
    again = xl.Restriction.load("line.safetensors", xl.load("loan.nnet"))
    assert len(again) == 3
    assert again.check().worst < 1e-9
    assert (tmp_path / "line.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--from", "20", "--to", "30,50"), 2, "shape (2,), the point has shape (1,)"),
        (("--from", "20,30", "--from", "1,2", "--to", "30,50"), 2, "takes 1 input, but --from is given 2 times"),
        (("--from", "missing.npy", "--to", "30,50"), 6, "where: missing.npy"),
        (("--from", "20,30", "--to", "30,50", "--plot", "a.txt"), 2, ".png, .pdf or .svg"),
        (("--from", "20,30", "--to", "30,50", "--plot", "a.png", "--no-values"), 2, "needs the values"),
        (("--from", "20,30", "--to", "30,50", "--out", "no/a"), 6, "folder does not exist"),
        (("--from", "20,30", "--to", "30,50", "--memory", "much"), 2, "not an amount of memory"),
        (("--from", "20,30", "--to", "30,50", "--device", "moon"), 2, "device moon cannot be used"),
        (("--from", "20,30"), 2, "Missing option"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.every(2)
def test_restrict_refuses_invalid_options(run, arguments, status, message):
    found, out, err = run("restrict", "loan.nnet", *arguments)
    assert (found, out) == (status, "")
    assert message in err


def test_restrict_keeps_one_of_several_outputs(run, tmp_path):
    network = as_network(lambda x: (x.relu(), x[:, :1] - 1), [torch.zeros(2)])
    network.save(tmp_path / "heads.onnx")
    call = ("restrict", "heads.onnx", "--from", "-1,-1", "--to", "1,2", "--json")
    assert len(json.loads(run(*call)[1])["values"]) == 2
    status, out, _ = run(*call, "--output", "1")
    assert (status, json.loads(out)["values"]) == (0, [[-2.0], [0.0]])
    status, _, err = run(*call, "--output", "2")
    assert (status, "no output 2" in err) == (2, True)


def test_restrict_names_the_outputs(run, tmp_path):
    line = ("restrict", "loan.nnet", "--from", "20,30", "--to", "30,50", "--labels", "no,yes")
    status, out, _ = run(*line, "--plot", tmp_path / "named.svg")
    assert status == 0
    assert "at the start" in out
    assert "yes" in out
    assert ">yes</text>" in (tmp_path / "named.svg").read_text()
    assert json.loads(run(*line, "--json")[1])["names"] == ["no", "yes"]
    status, _, err = run(*line[:-1], "no,maybe,yes")
    assert (status, "3 names for 2 outputs" in err) == (2, True)
    assert run(*line, "--no-values")[0] == 2

"""The commands metrics and compare: what they print, and what they refuse."""

import json

import pytest

import exactline as xl

ENDS = ("--from", "20,30", "--to", "30,50")


def test_metrics_as_json_agree_with_the_library(run):
    status, out, err = run("metrics", "loan.nnet", *ENDS, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    expected = xl.restrict(xl.load("loan.nnet"), [20.0, 30.0], [30.0, 50.0], record="layers").metrics().to_dict()
    assert {name: found[name] for name in expected} == expected
    assert found["layers"][0]["crossings"] == 2


def test_metrics_are_printed_as_tables(run):
    status, out, _ = run("metrics", "loan.nnet", *ENDS)
    assert status == 0
    assert out.startswith("3 pieces on a length of 22.36")
    assert "Lipschitz constant" in out
    assert "always on" in out
    assert "always on" not in run("metrics", "loan.nnet", *ENDS, "--no-layers")[1]


def test_metrics_of_a_stopped_sweep_say_so(run):
    found = json.loads(run("metrics", "loan.nnet", *ENDS, "--max-breaks", "3", "--json")[1])
    assert (found["pieces"], found["complete"], found["stopped"]) == (2, False, "max_breaks")
    assert found["reached"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (("metrics", "loan.nnet", "--from", "1,2", "--to", "1,2"), 2, "length 0"),
        (("metrics", "loan.nnet", *ENDS, "--max-breaks", "1"), 5, "before its first piece"),
        (("metrics", "smooth.eran", *ENDS), 3, "smooth"),
        (("compare", "loan.nnet", "tailed.eran", *ENDS), 2, "outputs of shapes"),
        (("compare", "loan.nnet", "missing.nnet", *ENDS), 6, "missing.nnet"),
        (("compare", "loan.nnet", "scaled.nnet", *ENDS, "--order", "most"), 2, "--order"),
    ],
)
def test_what_cannot_be_measured_is_refused(run, arguments, status, word):
    found, _, err = run(*arguments)
    assert found == status
    assert word in err


def test_compare_prints_where_networks_differ(run):
    status, out, _ = run("compare", "loan.nnet", "scaled.nnet", *ENDS)
    assert status == 0
    assert "different classes on" in out
    found = json.loads(run("compare", "loan.nnet", "scaled.nnet", *ENDS, "--json")[1])
    expected = xl.compare(xl.load("loan.nnet"), xl.load("scaled.nnet"), [20.0, 30.0], [30.0, 50.0])
    assert found["largest_difference"] == expected.largest_difference.tolist()
    assert found["disagreement"] == expected.disagreement
    assert found["disagreements"] == [vars(d) for d in expected.disagreements]


def test_a_network_does_not_differ_from_itself(run):
    found = json.loads(run("compare", "loan.nnet", "loan.nnet", *ENDS, "--json")[1])
    assert found["disagreements"] == []
    assert max(found["largest_difference"]) <= found["error"]


def test_restrict_sends_the_record(run):
    found = json.loads(run("restrict", "loan.nnet", *ENDS, "--record", "layers", "--json")[1])
    assert found["layers"] == [{"node": "layer_1.relu", "units": 2, "crossings": 2, "dead": 0, "always_on": 0}]
    assert "layers" not in json.loads(run("restrict", "loan.nnet", *ENDS, "--json")[1])
    assert run("restrict", "loan.nnet", *ENDS, "--record", "all")[0] == 2

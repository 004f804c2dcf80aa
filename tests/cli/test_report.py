"""The command report: a page from a saved line or plane, with or without the network."""

import json
import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import exactline as xl
from tests.plot.test_line_page import data_of

LINE = ("restrict", "loan.nnet", "--from", "20,30", "--to", "30,50", "--out", "line.safetensors")
PLANE = ("plane", "loan.nnet", "--base", "0,0", "--axes", "0,1", "--box", "20,30,30,50", "--out", "plane.safetensors")


def test_a_saved_line_becomes_a_page_next_to_it(run, tmp_path):
    assert run(*LINE)[0] == 0
    status, out, err = run("report", "line.safetensors")
    assert (status, out.strip()) == (0, "line.html")
    assert err.startswith("line: 3 pieces")
    data = data_of(tmp_path / "line.html")
    assert data["title"] == "line"
    assert [c["name"] for c in data["decisions"]["classes"]] == ["1", "0"]


def test_the_options_are_those_of_to_html(run, tmp_path):
    run(*LINE)
    names = ("--labels", "no, yes", "--features", "age,income", "--title", "a loan", "--order", "min")
    status, out, _ = run("report", "line.safetensors", "--out", "page.htm", *names, "--json")
    document = json.loads(out)
    assert (status, document["kind"], document["pieces"], document["page"]) == (0, "line", 3, "page.htm")
    assert document["bytes"] == (tmp_path / "page.htm").stat().st_size
    line = xl.Restriction.load("line.safetensors")
    options = {"labels": ["no", "yes"], "features": ["age", "income"], "title": "a loan", "order": "min"}
    assert (tmp_path / "page.htm").read_bytes() == line.to_html(tmp_path / "b.html", **options).read_bytes()


def test_inputs_as_images_and_tables(run, tmp_path):
    xl.restrict(nn.Flatten(), torch.zeros(4, 4), torch.ones(4, 4)).save("a.safetensors")
    for options, kind in (((), "image"), (("--table",), "table"), (("--image", "2,8"), "image")):
        assert run("report", "a.safetensors", *options)[0] == 0
        assert data_of(tmp_path / "a.html")["inputs"][0]["kind"] == kind


def test_a_plane_shows_its_classes_if_the_network_is_given(run, tmp_path):
    run(*PLANE)
    assert run("report", "plane.safetensors")[0] == 0
    assert data_of(tmp_path / "plane.html")["decisions"] is None
    status, _, err = run("report", "plane.safetensors", "--labels", "no,yes")
    assert (status, "--model" in err) == (2, True)
    status, out, _ = run("report", "plane.safetensors", "--model", "loan.nnet", "--labels", "no,yes", "--json")
    assert (status, json.loads(out)["kind"]) == (0, "plane")
    assert {c["name"] for c in data_of(tmp_path / "plane.html")["decisions"]["classes"]} == {"no", "yes"}


def test_missing_values_are_computed_by_the_network(run, tmp_path):
    run(*LINE, "--no-values")
    assert run("report", "line.safetensors")[0] == 0
    assert data_of(tmp_path / "line.html")["curves"] == []
    assert run("report", "line.safetensors", "--model", "loan.nnet")[0] == 0
    assert len(data_of(tmp_path / "line.html")["curves"]) == 2


@pytest.mark.slow
def test_invalid_reports_are_refused_and_nothing_is_written(run, tmp_path):
    run(*LINE)
    run(*PLANE)
    (tmp_path / "odd.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0[[[[[[[[")
    os.mkfifo(tmp_path / "pipe.safetensors")
    before = set(tmp_path.iterdir())
    for status, *arguments in (
        (6, "none.safetensors"),
        (6, "."),
        (6, "pipe.safetensors"),  # opening it would block
        (6, "loan.nnet", "--out", "a.html"),
        (6, "odd.safetensors"),
        (2, "line.safetensors", "--out", "a.pdf"),
        (6, "line.safetensors", "--out", "none/a.html"),
        (2, "line.safetensors", "--labels", "a"),
        (2, "line.safetensors", "--features", "a"),
        (2, "line.safetensors", "--order", "most"),
        (2, "line.safetensors", "--image", "a"),
        (2, "line.safetensors", "--image", "5,5"),
        (2, "line.safetensors", "--image", "1,2", "--table"),
        (2, "line.safetensors", "--output", "4"),
        (6, "line.safetensors", "--model", "scaled.nnet"),
        (2, "plane.safetensors", "--features", "a,b,c"),
        (2, "plane.safetensors", "--image", "1,2"),
        (2, "plane.safetensors", "--order", "most"),
    ):
        found, out, err = run("report", *arguments)
        assert (found, out) == (status, ""), arguments
        assert "where:" in err
        assert "try:" in err
    assert set(tmp_path.iterdir()) == before


def test_an_error_names_the_option(run):
    run(*LINE)
    for option, value, problem in (
        ("--labels", "a", "That is 1 name for 2 outputs."),
        ("--features", "a,b,c", "That is 3 names for 2 features."),
        ("--image", "5,5", "The input has shape (2,), which is not an image of shape (5, 5)."),
    ):
        _, _, err = run("report", "line.safetensors", option, value)
        assert err.splitlines()[:2] == [problem, f"  where: {option}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("names", [1, 2, 3]),
        ("names", ["input"]),  # breaks are born in nodes that have no name then
        ("units", "many"),
        ("units", {"relu": -1}),
        ("seconds", "soon"),
        ("seconds", float("nan")),
        ("stored_error", None),
        ("engine", 3),
        ("several_outputs", "no"),
    ],
)
@pytest.mark.every(4)
def test_a_file_with_invalid_facts_is_refused(run, tmp_path, name, value):
    run(*LINE)
    tensors = load_file("line.safetensors")
    with safe_open("line.safetensors", framework="pt") as file:
        header = file.metadata()
    facts = json.loads(header["facts"])
    if name == "stored_error":  # one number for the line, in older files
        del tensors["errors"]
    else:
        assert type(facts[name]) is not type(value) or facts[name] != value
    save_file(tensors, "odd.safetensors", header | {"facts": json.dumps(facts | {name: value})})
    status, out, err = run("report", "odd.safetensors")
    assert (status, out) == (6, "")
    assert err.startswith("The file is not a valid line: ")


@pytest.mark.parametrize(("name", "place"), [("value.0", (1, 0)), ("end.0", (0, 1))])
def test_a_file_with_invalid_numbers_is_refused(run, name, place):
    run(*LINE)
    tensors = load_file("line.safetensors")
    with safe_open("line.safetensors", framework="pt") as file:
        header = file.metadata()
    tensors[name][place] = float("nan")
    save_file(tensors, "odd.safetensors", header)
    status, _, err = run("report", "odd.safetensors")
    assert (status, err.splitlines()[0].partition(": ")[2]) == (6, "values or end points are not finite")

"""The command plane: networks in files on planes of their inputs."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network

GRID = ("--base", "0,0", "--axes", "0,1", "--box", "20,30,30,50")
CORNERS = ("--corner", "20,30", "--corner", "30,30", "--corner", "30,50", "--corner", "20,50")
# The loan network by hand: its units are on above y = 1.7 x - 3 and below y = (2 x + 3) / 1.3, between which both are,
# and there its outputs meet on 2.3 y = 3.7 x. All three lines cross the box from its left to its right side.
BOTH, BOX = 530 / 1.3 - 425 + 30, 200
FIRST = 500 - 3.7 * 250 / 2.3


class Two(nn.Module):
    """Two inputs."""

    def forward(self, a, b):
        return torch.relu(a - b)


class Outputs(nn.Module):
    """Two outputs."""

    def forward(self, x):
        return torch.relu(x), x


def save_model(model, *points, name="made.onnx"):
    as_network(model, [torch.as_tensor(p, dtype=torch.float64) for p in points]).save(name)
    return name


@pytest.mark.parametrize("given", [GRID, CORNERS], ids=["grid", "corners"])
def test_polygons_of_the_loan_network_agree_with_the_solution_by_hand(run, given):
    status, out, err = run("plane", "loan.nnet", *given, "--labels", "no,yes", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert [found[name] for name in ("pieces", "corners", "edges", "ambiguous")] == [3, 8, 10, 0]
    assert found["origins"] == {"layer_1.relu": 2}
    assert found["units"] == {"relu": 2}
    assert found["area"] == pytest.approx(BOX, rel=1e-14)
    assert found["smallest"]["area"] == pytest.approx(BOTH, rel=1e-13)
    assert len(found["smallest"]["corners"]) == 4
    yes, no = found["classes"]
    assert (yes["name"], yes["label"], no["name"], no["label"]) == ("yes", 1, "no", 0)
    assert (yes["area"], no["area"]) == pytest.approx((BOX - FIRST, FIRST), rel=1e-13)
    assert (yes["share"], yes["regions"], yes["tied_area"]) == (pytest.approx(1 - FIRST / BOX), 1, 0)
    assert found["seconds"] > 0


def test_the_smallest_output_can_decide(run):
    found = json.loads(run("plane", "loan.nnet", *GRID, "--order", "min", "--json")[1])
    assert found["order"] == "min"
    areas = {c["name"]: c["area"] for c in found["classes"]}
    assert areas == pytest.approx({"0": BOX - FIRST, "1": FIRST}, rel=1e-13)


def test_a_triangle_through_three_points(run):
    points = ("--through", "20,30", "--through", "30,30", "--through", "25,50")
    found = json.loads(run("plane", "loan.nnet", *points, "--outline", "triangle", "--margin", "0", "--json")[1])
    assert found["area"] == pytest.approx(100, rel=1e-14)
    wide = json.loads(run("plane", "loan.nnet", *points, "--margin", "0.5", "--json")[1])
    assert wide["area"] == pytest.approx(20 * 40, rel=1e-13)


def test_the_summary_is_a_table(run):
    status, out, err = run("plane", "loan.nnet", *GRID, "--labels", "no[b],yes")
    assert (status, err) == (0, "")
    assert out.startswith("3 polygons in ")
    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in out.splitlines() if "│" in row]
    assert rows == [["yes", "102.174", "51.1 %", "1"], ["no[b]", "97.8261", "48.9 %", "1"], ["layer_1.relu", "2"]]


def test_ties_are_shown(run):
    away = ("--base", "0,0", "--axes", "0,1", "--box", "-1,1,-1,1")
    name = save_model(nn.ReLU(), [0.0, 0.0])
    row = next(row for row in run("plane", name, *away)[1].splitlines() if "tied" in row)
    assert "0 (40 % of it tied)" in row  # a quarter of the square, of 5/8
    assert json.loads(run("plane", name, *away, "--json")[1])["classes"][0]["tied_area"] == 1


def test_files_are_written_and_read_back(run, tmp_path):
    files = ("--out", "a.safetensors", "--plot", "a.png", "--html", "a.html")
    status, _, err = run("plane", "loan.nnet", *GRID, *files, "--style", "decisions", "--labels", "no,yes")
    assert (status, err.splitlines()) == (0, ["saved to a.safetensors", "drawn to a.png", "page in a.html"])
    assert len(xl.PlaneRestriction.load(tmp_path / "a.safetensors", xl.load("loan.nnet"))) == 3
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<title>loan.nnet</title>" in (tmp_path / "a.html").read_text()
    assert '"name":"yes"' in (tmp_path / "a.html").read_text()


def test_points_are_marked_by_the_texts_they_were_given_as(run, tmp_path):
    np.savez(tmp_path / "p.npz", a=[20.0, 30.0], b=[30.0, 30.0], c=[25.0, 50.0])
    points = [text for key in "abc" for text in ("--through", f"p.npz:{key}")]
    assert run("plane", "loan.nnet", *points, "--plot", "a.svg")[0] == 0
    assert all(f">p.npz:{key}<" in (tmp_path / "a.svg").read_text() for key in "abc")
    long = [text for key in ("20.", "30.", "25.") for text in ("--through", f"{key}{'0' * 30},{key[:1]}0")]
    assert run("plane", "loan.nnet", *long, "--plot", "b.svg")[0] == 0
    assert ">second<" in (tmp_path / "b.svg").read_text()


def test_without_values_there_are_polygons_but_no_classes(run, tmp_path):
    found = json.loads(run("plane", "loan.nnet", *GRID, "--no-values", "--json", "--html", "a.html")[1])
    assert (found["pieces"], found["classes"], found["order"]) == (3, None, None)
    assert '"decisions":null' in (tmp_path / "a.html").read_text()


def test_a_network_of_several_inputs_takes_one_option_per_input(run):
    name = save_model(Two(), [0.0, 0.0], [0.0, 0.0])
    corners = [("0,0", "0,0"), ("2,0", "0,0"), ("2,0", "0,2"), ("0,0", "0,2")]
    given = [text for parts in corners for part in parts for text in ("--corner", part)]
    found = json.loads(run("plane", name, *given, "--json")[1])
    assert (found["pieces"], found["area"]) == (1, pytest.approx(4))
    status, _, err = run("plane", name, *given[:-2])
    assert (status, err.splitlines()[-1]) == (2, "  try:   Give it 6 times or more.")


def test_a_network_of_several_outputs_has_no_classes(run):
    found = json.loads(run("plane", save_model(Outputs(), [0.0, 0.0]), *GRID[:4], "--box", "-1,1,-1,1", "--json")[1])
    assert (found["pieces"], found["classes"]) == (4, None)


def test_a_memory_bound_changes_no_result(run):
    found = [json.loads(run("plane", "loan.nnet", *GRID, *m, "--json")[1]) for m in ((), ("--memory", "1M"))]
    assert found[0]["classes"] == found[1]["classes"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 2, "No plane is given."),
        ((*GRID, *CORNERS), 2, "The plane is given in more than one way."),
        (GRID[:4], 2, "--base, --axes and --box belong together."),
        ((*CORNERS, "--axes", "0,1"), 2, "--base, --axes and --box belong together."),
        (CORNERS[:4], 2, "--corner is given 2 times."),
        (("--through", "1,2"), 2, "--through is given 1 time."),
        ((*GRID, "--base", "1,1"), 2, "--base is given 2 times."),
        ((*GRID[:4], "--box", "0,1"), 2, "'0,1' is not 4 numbers."),
        ((*GRID[:4], "--box", "0,1,0,x"), 2, "'0,1,0,x' is not 4 numbers."),
        ((*GRID[:4], "--box", "0,1,1,0"), 2, "From 1 to 0 is not a range."),
        ((*GRID[:2], "--axes", "0,0", "--box", "0,1,0,1"), 2, "Both axes are the same feature."),
        ((*GRID[:2], "--axes", "0,2", "--box", "0,1,0,1"), 2, "2 is not a position in an input of shape (2,)."),
        ((*GRID[:2], "--axes", "0.5,1", "--box", "0,1,0,1"), 2, "'0.5,1' is not 2 numbers."),
        ((*CORNERS[:4], "--corner", "1e9999,0"), 2, "The point holds NaN or infinite numbers."),
        ((*CORNERS[:4], "--corner", "20,30"), 2, "Two corners are the same point."),
        ((*CORNERS[:4], "--corner", "25,30"), 2, "The corners lie on one line."),
        ((*CORNERS[:4], "--corner", "1,2,3"), 2, "The network takes points of shape (2,)"),
        ((*GRID, "--style", "cubes"), 2, "There is no style 'cubes'."),
        ((*GRID, "--order", "most"), 2, "There is no order 'most'."),
        ((*GRID, "--outline", "circle"), 2, "There is no outline 'circle'."),
        ((*CORNERS[:6], "--margin", "nan"), 0, ""),
        (
            ("--through", "1,2", "--through", "2,2", "--through", "1,3", "--margin", "nan"),
            2,
            "nan is not a valid margin.",
        ),
        ((*GRID, "--labels", "a"), 2, "That is 1 name for 2 outputs."),
        ((*GRID, "--style", "decisions", "--no-values"), 2, "Decisions need the values."),
        ((*GRID, "--memory", "much"), 2, "'much' is not an amount of memory."),
        ((*GRID, "--plot", "a.gif"), 2, "The file must end in .png, .pdf or .svg."),
        ((*GRID, "--html", "a.txt"), 2, "The file must end in .html or .htm."),
        ((*GRID, "--out", "a.npz"), 2, "The file must end in .safetensors."),
        ((*GRID, "--html", "none/a.html"), 6, "Its folder does not exist."),
    ],
)
@pytest.mark.every(5)
def test_invalid_options_are_refused_and_nothing_is_written(run, tmp_path, arguments, status, message):
    before = sorted(p.name for p in tmp_path.iterdir())
    found, _, err = run("plane", "loan.nnet", *arguments)
    assert (found, err[: len(message)], bool(err)) == (status, message, bool(message))
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_options_are_checked_before_the_network_is_read(run):
    for more in (("--style", "cubes"), ("--plot", "none/a.png"), ("--memory", "much")):
        assert "torn" not in run("plane", "torn.nnet", *GRID, *more)[2]
    assert run("plane", "torn.nnet", *GRID)[0] == 6
    assert run("plane", "smooth.eran", *GRID)[0] == 3


def test_the_polygons_of_a_published_network_fill_the_plane(run, data):
    file = data / "acasxu" / "nnet" / "ACASXU_run2a_1_1_batch_2000.nnet"
    if not file.exists():
        pytest.skip(f"{file.name} is not among the published networks at hand")
    place = ("--base", "0,0,-3.1,150,150", "--axes", "0,1", "--box", "0,3000,-0.5,0.5")
    found = json.loads(run("plane", file, *place, "--order", "min", "--json", "--html", "a.html")[1])
    assert found["area"] == pytest.approx(3000, rel=1e-14)
    assert sum(c["area"] for c in found["classes"]) == pytest.approx(3000, rel=1e-10)
    assert found["pieces"] > 1000
    rest = found["edges"] - sum(found["origins"].values())
    assert found["pieces"] + found["corners"] - found["edges"] == 1  # Euler: a disc without holes
    assert rest >= 4  # the outline


def test_one_output_is_decided_by_a_threshold(run):
    save_model(nn.Linear(2, 1), [0.0, 0.0])
    square = ("plane", "made.onnx", "--base", "0,0", "--axes", "0,1", "--box", "-1,1,-1,1", "--json")
    document = json.loads(run(*square)[1])
    assert (document["classes"], document["threshold"]) == (None, None)
    save_model(Outputs(), [0.0, 0.0])
    status, out, _ = run(*square, "--output", "1")
    assert (status, [c["share"] for c in json.loads(out)["classes"]]) == (0, [0.5, 0.5])
    save_model(nn.Sequential(nn.Identity(), Sum()), [0.0, 0.0])
    status, out, _ = run(*square, "--threshold", "1", "--labels", "low,high")
    document = json.loads(out)
    assert (status, document["threshold"]) == (0, 1.0)
    assert {c["name"]: c["area"] for c in document["classes"]} == pytest.approx({"low": 3.5, "high": 0.5})
    status, out, _ = run(
        *square[:-1], "--threshold", "1", "--plot", "a.png", "--html", "a.html", "--style", "decisions"
    )
    assert (status, "class 1 where the output is above 1" in out) == (0, True)


class Sum(nn.Module):
    """One output: the sum of the inputs."""

    def forward(self, x):
        return x.sum(1, keepdim=True)


def test_limits_end_a_plane_with_an_error(run):
    status, out, err = run("plane", "loan.nnet", *GRID, "--max-polygons", "2")
    assert (status, out) == (7, "")
    assert "more than 2 polygons: 3 or more" in err
    status, out, err = run("plane", "loan.nnet", *GRID, "--seconds", "0")
    assert (status, out) == (7, "")
    assert "not finished after 0 seconds" in err
    assert run("plane", "loan.nnet", *GRID, "--max-polygons", "3", "--seconds", "600")[0] == 0


def test_features_name_the_axes(run, tmp_path):
    page, picture = tmp_path / "loan.html", tmp_path / "loan.svg"
    names = ("--features", "age (years), income (1000 $)")
    assert run("plane", "loan.nnet", *GRID, *names, "--html", str(page), "--plot", str(picture))[0] == 0
    assert '"age (years)"' in page.read_text()
    assert "income (1000 $)" in picture.read_text()
    assert run("plane", "loan.nnet", *GRID, "--out", "loan.safetensors")[0] == 0
    assert run("report", "loan.safetensors", *names, "--out", str(page))[0] == 0
    assert '"age (years)"' in page.read_text()


def test_features_of_another_number_are_refused(run):
    status, _, err = run("plane", "loan.nnet", *GRID, "--features", "age")
    assert status == 2
    assert err.splitlines()[:2] == ["That is 1 name for 2 features.", "  where: --features"]

"""Tests of the command attribute: exact integrated gradients of networks in files."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import exactline as xl
from exactline import cli
from exactline.network import as_network
from exactline.zoo import digits_images, digits_network

AGES = ("--input", "20,30", "--baseline", "30,50")  # the line of the paper, reversed


def loan(x, y):
    """The loan network by hand: two units, followed by the identity."""
    return max(0.0, -1.7 * x + y + 3), max(0.0, 2 * x - 1.3 * y + 3)


@pytest.fixture
def digits(run, tmp_path):
    image = digits_images()[0][9]
    as_network(digits_network(), [image]).save(tmp_path / "digits.onnx")
    np.savez(tmp_path / "points.npz", four=image.numpy(), grey=np.full((1, 8, 8), 0.5))
    return image


def test_loan_is_split_as_by_hand(run):
    status, out, err = run("attribute", "loan.nnet", *AGES, "--target", "1", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    line = xl.restrict(xl.load("loan.nnet"), [30.0, 50.0], [20.0, 30.0])
    # the second unit is on where 2 x - 1.3 y + 3 > 0 ...
    on = sum(
        float(b - a)
        for a, b, u, v in zip(line.alphas, line.alphas[1:], line.values[:, 1], line.values[1:, 1], strict=False)
        if max(u, v) > 0
    )
    assert 0 < on < 1
    # ... and there its gradient is (2, -1.3)
    assert found["attributions"] == pytest.approx([-10 * 2 * on, -20 * -1.3 * on], abs=1e-12)
    assert found["at_input"] == pytest.approx(loan(20, 30)[1])
    assert found["at_baseline"] == pytest.approx(loan(30, 50)[1])
    assert abs(found["delta"]) < 1e-12
    assert (found["target"], found["tail"], found["ambiguous"], found["pieces"]) == (1, None, 0, 3)


def test_the_largest_output_is_the_target_and_zeros_the_baseline(run):
    found = json.loads(run("attribute", "loan.nnet", "--input", "3,1", "--json")[1])
    assert found["target"] == int(np.argmax(loan(3, 1))) == 1
    assert found["at_baseline"] == 3.0
    same = json.loads(run("attribute", "loan.nnet", "--input", "3,1", "--baseline", "0,0", "--json")[1])
    assert same["attributions"] == found["attributions"]


def test_a_single_number_fills_the_baseline(run):
    one, all_of_them = (
        json.loads(run("attribute", "loan.nnet", "--input", "20,30", "--baseline", b, "--target", "0", "--json")[1])
        for b in ("-7.5", "-7.5,-7.5")
    )
    assert one["attributions"] == all_of_them["attributions"]


def test_a_tail_is_explained_by_default(run):
    arguments = ("attribute", "tailed.eran", "--input", "3,1", "--baseline", "-2,0.5", "--json")
    smooth, plain = json.loads(run(*arguments)[1]), json.loads(run(*arguments, "--no-tail")[1])
    network = xl.load("tailed.eran")
    x = torch.tensor([[3.0, 1.0], [-2.0, 0.5]], dtype=torch.float64)
    for found, tail in ((smooth, True), (plain, False)):
        at = network(x, tail=tail).reshape(-1).tolist()
        assert [found["at_input"], found["at_baseline"]] == pytest.approx(at)
        assert sum(found["attributions"]) == pytest.approx(at[0] - at[1], abs=1e-13)
    assert (smooth["tail"], plain["tail"]) == ("sigmoid", None)


def test_the_report_has_outputs_sums_and_the_largest_attributions(run, digits):
    status, out, err = run("attribute", "digits.onnx", "--input", "points.npz:four")
    assert (status, err) == (0, "")
    assert out.startswith("output 4: ")
    for said in (
        "at the input",
        "at the baseline",
        "attributions sum",
        "convergence delta",
        "subgradient",
        "54 others",
    ):
        assert said in out
    rows = [row.split("│")[1:-1] for row in out.splitlines() if row.startswith("│")]
    sizes = [abs(float(row[3])) for row in rows[:-1]]
    assert sizes == sorted(sizes, reverse=True)


def test_files_hold_the_attributions_and_json_is_alone(run, digits, tmp_path):
    pytest.importorskip("matplotlib")
    arguments = ("--input", "points.npz:four", "--baseline", "points.npz:grey", "--json", "--memory", "1M")
    status, out, err = run("attribute", "digits.onnx", *arguments, "--out", "a.npz", "--plot", "a.png")
    assert (status, err) == (0, "saved to a.npz\ndrawn to a.png\n")
    found = json.loads(out)
    with np.load(tmp_path / "a.npz") as saved:
        assert sorted(saved) == ["attributions", "baseline", "delta", "input", "target"]
        assert saved["attributions"].tolist() == found["attributions"]
        assert (saved["target"], saved["delta"]) == (found["target"], found["delta"])
        np.testing.assert_array_equal(saved["input"], digits.double())
        assert (saved["baseline"] == 0.5).all()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".a.npz*"))
    assert json.loads(run("attribute", "digits.onnx", "--input", "a.npz:input", "--json")[1])["target"] == 4


def test_the_subgradient_range_is_reported(run):
    arguments = ("attribute", "tailed.eran", "--input", "1,1", "--no-tail")  # 2 relu(x - y) + 1 along x = y
    found = json.loads(run(*arguments, "--json")[1])
    assert (found["pieces"], found["ambiguous"], found["subgradient_range"]) == (1, 1, 4.0)  # 2 from x, and 2 from y
    assert found["sum"] == found["delta"] == 0
    assert (
        "once a unit stays on a kink along a piece: the choice of its subgradient changes 4 of attribution"
        in run(*arguments)[1]
    )


def test_several_inputs_are_given_and_saved_in_their_order(run, tmp_path):
    class Two(nn.Module):
        def forward(self, x, y):
            return torch.relu(x.sum(1, keepdim=True) + 2 * y)

    as_network(Two().eval(), [torch.zeros(2), torch.zeros(1)]).save(tmp_path / "two.onnx")
    arguments = ("attribute", "two.onnx", "--input", "1,2", "--input", "3", "--baseline", "0.5", "--out", "two.npz")
    status, out, _ = run(*arguments)
    assert status == 0
    assert "x[1] of input 0" in out
    with np.load(tmp_path / "two.npz") as saved:
        assert saved["attributions.0"].tolist() == pytest.approx([0.5, 1.5])
        assert saved["attributions.1"].tolist() == pytest.approx([5.0])
        assert saved["baseline.0"].tolist() == [0.5, 0.5]
    assert run("attribute", "two.onnx", "--input", "1,2")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((*AGES, "--target", "2"), 2, "There is no output 2: the network has 2 outputs."),
        ((*AGES, "--target", "-1"), 2, "There is no output -1"),
        (("--input", "20"), 2, "shape (2,), the point has shape (1,)"),
        (("--input", "20,nan"), 2, "NaN or infinite"),
        (("--input", "20,30", "--baseline", "nan"), 2, "NaN or infinite"),
        (("--input", "20,30", "--baseline", "1,2,3"), 2, "shape (2,), the point has shape (3,)"),
        (("--input", "20,30", "--baseline", "1", "--baseline", "2"), 2, "--baseline is given 2 times"),
        (("--input", "1e308,1e308", "--baseline", "-1e308"), 4, ""),
        ((*AGES, "--out", "a.safetensors"), 2, "The file must end in .npz."),
        ((*AGES, "--plot", "a.txt"), 2, ".png, .pdf or .svg"),
        ((*AGES, "--out", "no/a.npz"), 6, "folder does not exist"),
        ((*AGES, "--device", "moon"), 2, "device moon cannot be used"),
        ((*AGES, "--memory", "much"), 2, "not an amount of memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.every(3)
def test_invalid_arguments_are_refused(run, arguments, status, said):
    found, out, err = run("attribute", "loan.nnet", *arguments)
    assert (found, out) == (status, "")
    assert said in err


def test_help_has_an_example():
    shown = CliRunner().invoke(cli.app, ["attribute", "--help"])
    assert shown.exit_code == 0
    assert "Example: exactline attribute " in shown.output


class Heads(nn.Module):
    """Two outputs."""

    def forward(self, x):
        return x.relu(), 3 * x - 1


def test_one_of_several_outputs_is_explained_and_named(run, tmp_path):
    as_network(Heads(), [torch.zeros(2)]).save(tmp_path / "heads.onnx")
    names = xl.load(tmp_path / "heads.onnx").list_output_names()
    call = ("attribute", "heads.onnx", "--input", "1,2", "--target", "1")
    status, out, err = run(*call)
    assert status == 0
    assert (
        err
        == f"The network has 2 outputs: 0 ({names[0]}), 1 ({names[1]}). Explaining 0; choose another with --output.\n"
    )
    assert out.startswith(f"element 1 of output {names[0]}: ")
    for chosen in ("1", names[1]):
        status, out, err = run(*call, "--output", chosen, "--json")
        document = json.loads(out)
        assert (status, err, document["output"]) == (0, "", names[1])
        assert document["attributions"] == [0.0, 6.0]
    status, _, err = run(*call, "--output", "none")
    assert (status, "no output 'none'" in err) == (2, True)


def test_a_network_with_one_output_needs_no_name(run):
    status, out, err = run("attribute", "loan.nnet", "--input", "20,30", "--json")
    assert (status, err, json.loads(out)["output"]) == (0, "", None)

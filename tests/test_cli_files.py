"""The commands for files: info, convert and restrict, and how they end."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from typer.testing import CliRunner

import exactline as xl
from exactline import cli
from tests.test_package import run_bare

LOAN = """// the paper's example
2,2,2,2,
2,2,2,
0,
0,0,
100,100,
0,0,0,
1,1,1,
-1.7,1,
2,-1.3,
3,
3,
1,0,
0,1,
0,
0,
"""
SCALED = LOAN.replace("0,0,0,\n1,1,1,", "10,20,5,\n2,4,3,")
TAILED = "ReLU\n[[1, -1]]\n[0]\nSigmoid\n[[2]]\n[1]\n"
SMOOTH = "Sigmoid\n[[1, -1]]\n[0]\nTanh\n[[2]]\n[1]\nAffine\n[[1]]\n[0]\n"
FILES = {"loan.nnet": LOAN, "scaled.nnet": SCALED, "tailed.eran": TAILED, "smooth.eran": SMOOTH, "torn.nnet": LOAN[:60]}


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the command in a folder with some networks; exit status, standard output and error."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["exactline", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return done.value.code or 0, said.out, said.err

    return run


def python(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)


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


def test_info_on_a_folder_goes_on_after_errors(run, tmp_path):
    (tmp_path / "notes.txt").write_text("not a network")
    status, out, err = run("info", tmp_path)
    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in out.splitlines() if row.startswith("│")]
    assert [row[0].rpartition("/")[2] for row in rows] == sorted(FILES)
    assert rows[0][1:] == ["2", "2", "8", "2", "can be restricted exactly"]
    assert [row[-1].partition(":")[0] for row in rows].count("cannot") == 2
    assert (status, err) == (3, "")  # of the first that cannot


def test_info_as_json_tells_errors_apart(run):
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
    assert "holds no networks" in err


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


def test_convert_refuses_before_it_reads(run, tmp_path):
    assert run("convert", "missing.nnet", "loan.nnet")[2].startswith("The file is there already.")
    assert run("convert", "missing.nnet", "nowhere/new.onnx")[2].startswith("Its folder does not exist.")
    assert (tmp_path / "loan.nnet").read_text() == LOAN


def test_restrict_prints_the_line_and_its_nodes(run):
    status, out, err = run("restrict", "loan.nnet", "--from", "20,30", "--to", "30,50")
    assert (status, err) == (0, "")
    assert out.startswith("3 pieces, 2 ReLU units, ")
    assert "layer_1.relu │      2 │" in out


def test_restrict_as_json_says_what_the_library_says(run):
    status, out, err = run("restrict", "loan.nnet", "--from", "20,30", "--to", "30,50", "--json")
    assert (status, err) == (0, "")
    found, line = json.loads(out), xl.restrict(xl.load("loan.nnet"), [20.0, 30.0], [30.0, 50.0])
    assert found["alphas"] == line.alphas.tolist()
    assert found["values"] == line.values.tolist()
    assert found["births"] == [b and vars(b) for b in line.born]
    assert (found["pieces"], found["complete"]) == (3, True)


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


def test_restrict_follows_or_ignores_what_a_nnet_says_of_its_inputs(run):
    ends = ("--from", "20,30", "--to", "30,50", "--json")
    scaled, bare, loan = (
        json.loads(run("restrict", *which, *ends)[1])["values"]
        for which in (["scaled.nnet"], ["scaled.nnet", "--no-normalize"], ["loan.nnet"])
    )
    assert bare == loan != scaled


def test_restrict_saves_and_draws_and_keeps_json_alone(run, tmp_path):
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
    ("arguments", "status", "said"),
    [
        (("--from", "20", "--to", "30,50"), 2, "shape (2,), the point has shape (1,)"),
        (("--from", "20,30", "--from", "1,2", "--to", "30,50"), 2, "takes 1 inputs, --from is given 2 times"),
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
def test_restrict_refuses_what_makes_no_sense(run, arguments, status, said):
    found, out, err = run("restrict", "loan.nnet", *arguments)
    assert (found, out) == (status, "")
    assert said in err


def test_errors_that_are_not_ours_end_without_a_traceback(run, monkeypatch):
    def fail(path, **options):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr("exactline.formats.load", fail)
    status, _, err = run("convert", "loan.nnet", "new.onnx")
    assert status == 1
    assert err.startswith("Something went wrong that should not: RuntimeError: out of\n")
    assert json.loads(run("info", "--json", "loan.nnet")[1])[0]["exact"] is False


def test_an_interrupt_ends_quietly(run, monkeypatch):
    def fail(path, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("exactline.formats.load", fail)
    assert run("convert", "loan.nnet", "new.onnx") == (130, "", "")


def test_a_closed_pipe_ends_quietly():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "exactline", "version"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("command", ["info", "convert", "restrict"])
def test_help_has_an_example(command):
    shown = CliRunner().invoke(cli.app, [command, "--help"])
    assert shown.exit_code == 0
    assert f"Example: exactline {command} " in shown.output


def test_help_does_not_wait_for_torch():
    done = python("-c", "import exactline.cli, sys; print({'torch', 'numpy', 'rich.table'} & {*sys.modules})")
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_names_of_the_package_come_when_asked_for():
    done = python(
        "-c",
        "import exactline as xl, exactline.sweep.precise, exactline.restrict\n"
        "from exactline import *\n"
        "assert xl.restrict is restrict and xl.sweep is sweep and callable(sweep) and callable(restrict)\n"
        "assert {'load', 'Network', 'exact', 'LineError'} <= {*dir(xl)} & {*globals()}\n"
        "print(hasattr(xl, 'nothing'))",
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_names_of_the_package_need_only_torch_and_numpy():
    done = run_bare("print(all(hasattr(exactline, name) for name in exactline.__all__))")
    assert (done.stdout, done.stderr) == ("True\n", "")

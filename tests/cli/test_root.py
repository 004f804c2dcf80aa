"""The command as a whole: usage errors, --debug, help of every command, completion, and the doctor."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from runpy import run_path

import pytest
import torch
import typer.main

from exactline import cli
from exactline.cli import selftest
from exactline.console.exit import CLOSED_PIPE_STATUS, INTERRUPTED_STATUS
from exactline.errors import ERRORS
from exactline.zoo import loan_line
from tests.cli.running import LOAN, call_command

ROOT = Path(__file__).parents[2]
WITHOUT_JSON = {"exactline serve"}  # its log is JSON already


def list_commands(group=None, name="exactline"):
    """List every command with its full name."""
    group = typer.main.get_command(cli.app) if group is None else group
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from list_commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


COMMANDS = dict(list_commands())


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs the command in the current folder."""
    monkeypatch.delenv("EXACTLINE_DEBUG", raising=False)

    return partial(call_command, monkeypatch, capsys)


def process(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "exactline", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("arguments", "problem", "where"),
    [
        (["nothing"], "No such command 'nothing'.", "exactline"),
        (["study", "nothing"], "No such command 'nothing'.", "exactline study"),
        (["restrict", "a.nnet"], "Missing option '--from'.", "exactline restrict"),
        (["convert"], "Missing argument 'SRC'.", "exactline convert"),
        (["info", "a.nnet", "--nothing"], "No such option: --nothing", "exactline info"),
        (["train", "digits", "--epochs", "many"], "Invalid value for '--epochs': ", "exactline train digits"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_usage_error_is_three_lines(run, arguments, problem, where):
    status, out, err = run(*arguments)
    first, second, third = err.splitlines()
    assert (status, out) == (2, "")
    assert first.startswith(problem)
    assert (second, third) == (f"  where: {where}", f"  try:   {where} --help")


@pytest.mark.parametrize("arguments", [["--debug", "info", "no.nnet"], ["info", "no.nnet", "--debug"]], ids=str)
def test_debug_prints_the_traceback_and_changes_nothing_else(run, arguments):
    status, out, err = run(*arguments)
    plain = run("info", "no.nnet")
    assert err.startswith("Traceback (most recent call last):")
    assert err.endswith(plain[2])  # the three lines are its last
    assert (status, out) == plain[:2] == (6, "")
    assert "Traceback" not in plain[2]


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False), ("", False)])
def test_debug_can_be_set_in_the_environment(run, monkeypatch, value, shown):
    monkeypatch.setenv("EXACTLINE_DEBUG", value)
    assert ("Traceback" in run("info", "no.nnet")[2]) == shown


def test_debug_after_two_dashes_is_a_file_name(run):
    status, _, err = run("info", "--", "--debug")
    assert status == 6
    assert "Traceback" not in err
    assert "where: --debug" in err


def test_debug_prints_the_traceback_of_unexpected_errors(run, monkeypatch):
    def fail(path, **options):
        raise RuntimeError("out of memory")

    monkeypatch.setattr("exactline.formats.load", fail)
    status, _, err = run("--debug", "convert", "a.nnet", "b.onnx")
    assert status == 1
    assert "RuntimeError: out of memory" in err
    assert ", in fail" in err
    assert run("convert", "a.nnet", "b.onnx")[2].splitlines()[1:] == [
        "  try:   Run again with --debug to see where, and report it."
    ]


def test_without_a_command_help_is_shown(run):
    status, out, err = run()
    assert (status, err) == (2, "")
    assert out == run("--help")[1]


def test_help_lists_every_command_with_its_whole_first_sentence(run):
    listed = " ".join(run("--help")[1].split())
    for name, command in COMMANDS.items():
        if name.count(" ") == 1:
            assert " ".join(command.help.split("\n\n")[0].split()).rstrip(".") in listed


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.every(4)
def test_every_command_has_help_with_an_example(run, name):
    status, out, err = run(*name.split()[1:], "--help")
    assert (status, err) == (0, "")
    if name != "exactline version":
        assert f"Example: {name}" in out


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT_JSON))
def test_every_command_can_print_json(name):
    assert "--json" in [option for parameter in COMMANDS[name].params for option in parameter.opts]


def test_help_is_quick():
    used = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert process("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(f"exactline --help: {min(used):.2f} s of processor time")
    assert min(used) < 0.4


def test_a_shell_completes_commands_and_options():
    environment = {"_EXACTLINE_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert process(COMP_WORDS="exactline re", **environment).stdout.split() == ["restrict", "report"]
    environment["COMP_CWORD"] = "2"
    assert "density" in process(COMP_WORDS="exactline study ", **environment).stdout.split()
    environment["COMP_CWORD"] = "3"
    assert process(COMP_WORDS="exactline restrict a --js", **environment).stdout.split() == ["--json"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_printed_script():
    script = process(_EXACTLINE_COMPLETE="source_bash").stdout
    completion = (
        'COMP_WORDS=(exactline study den); COMP_CWORD=2; _exactline_completion exactline; echo "${COMPREPLY[@]}"'
    )
    command = f'PATH="{Path(sys.executable).parent}:$PATH"; {script}\ncomplete -p exactline; {completion}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    first, second = done.stdout.splitlines()
    assert first.startswith("complete -o default -F _exactline_completion"), done.stderr
    assert second == "density"


def test_the_doctor_finds_this_installation_sound(run):
    status, out, err = run("doctor", "--json")
    found = json.loads(out)
    assert (status, err, found["sound"]) == (0, "", True), out
    assert [check["passed"] for check in found["checks"]] == [True] * len(found["checks"])
    assert found["devices"][0]["name"] == "cpu"
    assert found["versions"]["torch"] == torch.__version__
    assert found["extras"]["plot"]["matplotlib"] is not None


def test_the_doctor_reports_what_is_wrong(run, monkeypatch):
    start, end = loan_line()
    monkeypatch.setattr("exactline.zoo.loan_line", lambda: (start, 2 * end))
    monkeypatch.setattr("exactline.zoo.digits_images", lambda: 1 / 0)
    monkeypatch.setattr(selftest, "EXTRA_PACKAGES", {"plot": ("matplotlib", "a-package-that-is-not-there")})
    status, out, err = run("doctor")
    assert (status, err) == (1, "")
    assert "pieces instead of 3" in out or "breaks at" in out
    assert "ZeroDivisionError" in out
    assert "3 of 6 checks of the self-test failed" in out
    assert 'pip install "exactline[plot]"' in out


def test_the_doctor_knows_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        extra: tuple(package.split(">")[0].split("=")[0] for package in packages) for extra, packages in extras.items()
    }
    assert {
        extra: named[extra] for extra in named.keys() - {"dev", "docs", "fuzz", "kernels"}
    } == selftest.EXTRA_PACKAGES


def test_the_page_of_commands_is_current():
    script = run_path(str(ROOT / "scripts" / "command_reference.py"))
    assert script["format_page"]() == script["PAGE"].read_text(), "run python scripts/command_reference.py"


def test_the_page_of_commands_lists_every_exit_status():
    shown = (ROOT / "docs" / "commands.md").read_text()
    table = dict(re.findall(r"^\| (\d+) \| (.*) \|$", shown, re.MULTILINE))
    for error in ERRORS:
        assert f"(`{error.code}`)" in table[str(error.exit_status)] or error.code == "exactline"
    assert {"0", "1", str(INTERRUPTED_STATUS), str(CLOSED_PIPE_STATUS)} <= table.keys()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.slow
def test_a_full_or_closed_output_prints_no_traceback(tmp_path):
    (tmp_path / "loan.nnet").write_text(LOAN)
    for redirected, status in ((">/dev/full", 6), (">&-", 0), (">&- 2>&-", 0)):
        for command in ("version", "info loan.nnet"):
            script = f'"$0" -m exactline {command} {redirected}'
            shell = ["sh", "-c", script, sys.executable]
            done = subprocess.run(shell, capture_output=True, text=True, check=False, cwd=tmp_path)
            assert done.returncode == status, (script, done.stderr)
            assert done.stderr.splitlines()[:1] == (["There is no space left on the device."] if status else [])
            assert "Traceback" not in done.stderr

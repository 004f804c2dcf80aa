"""The command study pendulum: what it writes, prints and refuses."""

import json

import pytest

from tests.cli.running import call_command


@pytest.mark.slow
def test_the_study_writes_its_files(monkeypatch, capsys, tmp_path):
    status, out, _ = call_command(
        monkeypatch, capsys, "study", "pendulum", "--steps", "2", "--out", tmp_path / "p", "--json", "--no-progress"
    )
    assert status == 0
    found = json.loads(out)
    assert (found["safe"], found["counterexample"], len(found["steps"])) == (True, None, 2)
    assert sorted(p.name for p in (tmp_path / "p").iterdir()) == [
        "pendulum.png",
        "pendulum.svg",
        "report.md",
        "steps.csv",
    ]


def test_a_violated_limit_is_told(monkeypatch, capsys, tmp_path):
    options = ("--steps", "1", "--limit", "0.1", "--no-pictures", "--no-progress", "--out", tmp_path)
    status, out, _ = call_command(monkeypatch, capsys, "study", "pendulum", *options)
    assert status == 0
    assert "Not safe" in out


def test_wrong_numbers_are_refused(monkeypatch, capsys, tmp_path):
    for option in ("--steps", "--angle", "--limit"):
        status, _, err = call_command(monkeypatch, capsys, "study", "pendulum", option, "0", "--out", tmp_path)
        assert status == 2
        assert option in err

"""Work that takes long says so on standard error, also where that is no terminal."""

import time

import pytest

from exactline.console import progress_bar
from exactline.console.progress_bar import show_bar, show_clock, show_study_progress


@pytest.fixture
def soon(monkeypatch):
    """Lines after a hundredth of a second instead of ten seconds."""
    monkeypatch.setattr(progress_bar, "FIRST_LINE_SECONDS", 0.01)
    monkeypatch.setattr(progress_bar, "LINE_SECONDS", 0.01)


def wait_for(capsys, text):
    """Wait until standard error has a text; returns all of it."""
    said, until = "", time.monotonic() + 60
    while text not in said and time.monotonic() < until:
        time.sleep(0.01)
        said += capsys.readouterr().err
    return said


def test_a_bar_becomes_lines(soon, capsys):
    text = "{task.completed:.4f}, {task.fields[breaks]:,} breaks"
    with show_bar(True, "alpha", text, breaks=0) as update:
        update(0.25, breaks=1234)
        assert "alpha 0.2500, 1,234 breaks, 0 s\n" in wait_for(capsys, "1,234")
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr().err == ""  # nothing is printed after the block
    with show_study_progress(True) as report:
        report(0.5, "drawing")
        assert "drawing, 0 s" in wait_for(capsys, "drawing")


def test_a_clock_becomes_lines(soon, capsys):
    with show_clock(True, "verifying"):
        assert "verifying, 0 s" in wait_for(capsys, "verifying")


def test_short_work_and_no_progress_say_nothing(capsys, monkeypatch):
    with show_bar(True, "alpha", "{task.completed}") as update:
        update(1.0)
    monkeypatch.setattr(progress_bar, "FIRST_LINE_SECONDS", 0.0)
    with show_bar(False, "alpha", "") as update, show_clock(False, "verifying"):
        assert update is None
        time.sleep(0.02)
    assert capsys.readouterr().err == ""

"""The commands of the paper's tables: what they write and refuse, and how they continue after being killed."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exactline.paper.cache import CACHE_FOLDER

LINEARITY = ["lines.csv", "report.md", "table3.csv", "table4.csv", "tangent.csv"]
IG = ["errors.csv", "images.csv", "report.md", "table1.csv", "table2.csv"]


def names(folder):
    return sorted(p.name for p in folder.iterdir() if p.name != CACHE_FOLDER)


@pytest.mark.slow
def test_linearity_writes_tables_and_pictures(run, tmp_path):
    status, out, err = run("study", "linearity", "--out", "out", "--images", 3)
    assert (status, err) == (0, "")
    assert names(tmp_path / "out") == sorted([*LINEARITY, "figure4.png", "ratios.png"])
    assert "Table 3" in out
    assert "of processor time" in out
    assert re.search(r"digits, normal network: FGSM lines (ARE|are) ", out)
    report = (tmp_path / "out/report.md").read_text()
    assert "bundled with exactline, not the paper's" in report
    assert "floor(0.03 img) sign" in report
    assert "seconds" not in report
    for name in ("figure4.png", "ratios.png"):
        assert (tmp_path / "out" / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_ig_writes_tables_and_pictures(run, tmp_path):
    status, out, err = run("study", "ig", "--out", "out", "--images", 2, "--network", "normal", "--network", "DiffAI")
    assert (status, err) == (0, "")
    assert names(tmp_path / "out") == sorted([*IG, "errors.png", "figure3.png"])
    assert "gauss-legendre" in out
    rows = (tmp_path / "out/images.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in rows[1:]] == [
        ["normal", "0"],
        ["normal", "1"],
        ["DiffAI", "0"],
        ["DiffAI", "1"],
    ]
    assert "|approximation - exact| / |exact + 1e-11|" in (tmp_path / "out/report.md").read_text()


@pytest.mark.slow
def test_json_agrees_with_the_tables(run, tmp_path):
    arguments = ("--out", "out", "--images", 1, "--network", "normal", "--no-pictures", "--json")
    status, out, err = run("study", "ig", *arguments)
    found = json.loads(out)
    assert (status, err) == (0, "")
    for name in ("table1", "table2"):
        table = found["tables"][name]
        with (tmp_path / f"out/{name}.csv").open() as file:
            assert list(csv.reader(file)) == [table["head"], *table["rows"]]
    assert sorted(Path(name).name for name in found["files"]) == IG


@pytest.mark.slow
def test_all_writes_one_report(run, tmp_path):
    status, _, err = run("study", "all", "--out", "out", "--images", 2, "--network", "normal")
    assert (status, err) == (0, "")
    pictures = ["errors.png", "figure2.png", "figure3.png", "figure4.png", "ratios.png"]
    assert names(tmp_path / "out") == sorted({*LINEARITY, *IG, *pictures, "report.html"})
    page, text = ((tmp_path / "out" / f"report.{kind}").read_text() for kind in ("html", "md"))
    assert page.count("data:image/png;base64,") == len(pictures)
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    for title in ("Table 1", "Table 2", "Table 3", "Table 4", "figure 2"):
        assert title in page
        assert title in text
    for written in (page, text):  # the paper is introduced before anything is said of it
        assert written.index("Sotoudeh") < written.index("the paper below") < written.index("not the paper")
    assert all(f"]({name})" in text for name in pictures)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("linearity", "--images", 0), 2, "at least one image"),
        (("ig", "--images", -3), 2, "at least one image"),
        (("ig", "--network", "vast"), 2, "no network 'vast'"),
        (("linearity", "--data", "absent"), 6, "convSmallRELU__Point.onnx"),
        (("all", "--data", "absent"), 6, "convSmallRELU__Point.onnx"),
    ],
)
@pytest.mark.every(4)
def test_invalid_studies_are_refused(run, arguments, status, words):
    found, out, err = run("study", *arguments, "--out", "out", "--no-pictures")
    assert (found, out) == (status, "")
    assert words in err
    assert "try:" in err


@pytest.mark.slow
def test_a_killed_run_continues_and_writes_the_same_bytes(run, tmp_path):
    """Killed in the middle by a signal that a program cannot handle."""
    arguments = ("study", "linearity", "--images", 15, "--no-pictures")
    command = [sys.executable, "-m", "exactline", *map(str, arguments), "--out", "killed"]
    cache = tmp_path / "killed" / CACHE_FOLDER
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path) as process:
        while process.poll() is None and len(list(cache.glob("*.json"))) < 5:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    done = len(list(cache.glob("*.json")))
    assert process.returncode == -signal.SIGKILL
    assert 5 <= done < 3 * 15
    assert not (tmp_path / "killed/table3.csv").exists()
    status, out, _ = run(*arguments, "--out", "killed")
    assert status == 0
    assert f"{done} results were reused" in out
    assert run(*arguments, "--out", "whole")[0] == 0
    assert names(tmp_path / "killed") == names(tmp_path / "whole") == LINEARITY
    for name in LINEARITY:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name

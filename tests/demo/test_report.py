"""The report of the demo: complete, self-contained, and accessible."""

import base64
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from exactline import cli
from exactline.demo import run as demo
from exactline.demo.report import format_number
from exactline.errors import FileError

PNG = b"\x89PNG\r\n\x1a\n"
VOID = {"meta", "link", "img", "br", "source"}


class PageParser(HTMLParser):
    """The elements of a page; an element that is left open or closed twice fails."""

    def __init__(self, path):
        super().__init__()
        self.found, self.open, self.text = [], [], []
        self.feed(path.read_text("ascii"))
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.found if name == tag]


@pytest.fixture(scope="module")
def page(demo_output):
    return PageParser(demo_output[0] / "index.html")


@pytest.fixture
def two_chapters(monkeypatch):
    """A shorter demo."""
    every = demo.__globals__["CHAPTERS"]
    chosen = {name: every[name] for name in ("the loan example", "a line between two digits")}
    monkeypatch.setitem(demo.__globals__, "CHAPTERS", chosen)


def test_every_reported_file_exists_and_no_other(demo_output):
    folder, reported = demo_output
    assert {Path(name) for name in reported["files"]} == set(folder.iterdir())
    assert reported["report"] == str(folder / "index.html")
    assert reported["missing_pictures"] is None
    for picture in folder.glob("*.png"):
        assert picture.read_bytes().startswith(PNG)


def test_the_report_fetches_nothing(demo_output, page):
    text = (demo_output[0] / "index.html").read_text()
    assert "http://" not in text
    assert "https://" not in text
    assert page.all("script") == []
    (policy,) = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


def test_links_have_targets(demo_output, page):
    ids = [attrs["id"] for _, attrs in page.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [a["href"] for a in page.all("a")]
    assert len(targets) > 15
    for target in targets:
        assert target[1:] in ids if target.startswith("#") else (demo_output[0] / target).is_file()


def test_pictures_are_embedded_and_have_descriptions(demo_output, page):
    names = ("digits", "encounter", "gradients", "errors", "plane", "loan")
    images = page.all("img")
    assert len(images) == len(names)
    for source, name in zip(page.all("source"), names, strict=True):
        assert source["media"] == "screen and (prefers-color-scheme: dark)"
        assert base64.b64decode(source["srcset"].split(",")[1]) == (demo_output[0] / f"{name}-dark.png").read_bytes()
    for image, name in zip(images, names, strict=True):
        kind, data = image["src"].split(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data) == (demo_output[0] / f"{name}.png").read_bytes()
        assert len(image["alt"]) > 20
        assert int(image["width"]) > 0
    assert ">alpha (358 pieces)</text>" in (demo_output[0] / "digits.svg").read_text()  # text stays text


def test_the_numbers_of_the_report_are_those_computed(page, facts):
    text = " ".join(page.text).replace("\u00a0", " ")
    assert f"{facts['digits']['pieces']:,} pieces" in text
    for interval in facts["digits"]["intervals"]:
        assert f"{interval['start']:.6f}" in text
    for region in facts["encounter"]["unsampled"]:
        assert f"{region['square_feet']:,.0f} square feet" in text
    for rule in facts["gradients"]["rules"]:
        assert f"{100 * rule['mean_error']:.2g} %" in text
    for network in facts["plane"]["networks"].values():
        assert f"{network['polygons']:,}" in text
        assert all(f"{100 * share:.3f} %" in text for share in network["shares"].values())
    assert f"{format_number(1 / 3)} and {format_number(2 / 3)}" in text


def test_the_report_s_python_runs(demo_output, page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    codes = re.findall(r"<pre><code>(.*?)</code></pre>", (demo_output[0] / "index.html").read_text(), re.DOTALL)
    assert len(codes) == 5
    for code in codes:
        exec(code.replace("&quot;", '"').replace("&#x27;", "'").replace("&gt;", ">"), {})


def test_the_command_ends_with_the_address_of_the_report(two_chapters, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["exactline", "demo", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert not done.value.code
    shown = capsys.readouterr().out
    assert "-1.7 age + income + 3" in shown
    assert "First a 4, then an 8, then a 9, then a 3." in " ".join(shown.split())
    assert shown.rstrip().endswith(f"The report: {(tmp_path / 'out' / 'index.html').as_uri()}")


def test_without_matplotlib_everything_but_pictures_is_there(two_chapters, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = demo(tmp_path)
    hint = 'Pictures need matplotlib. Try: pip install "exactline[plot]"'
    assert result.missing_pictures == hint == result.to_json()["missing_pictures"]
    assert {f.name for f in tmp_path.iterdir()} == {"index.html", "loan.html", "digits.html"}
    page = PageParser(tmp_path / "index.html")
    assert page.all("img") == []
    assert f"No pictures: {hint}" in " ".join(page.text)


@pytest.mark.parametrize("name", ["taken", "taken/below"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path, name):
    (tmp_path / "taken").write_text("a file")
    steps = []
    with pytest.raises(FileError, match="cannot be written to") as refused:
        demo(tmp_path / name, lambda share, step: steps.append(step))
    assert refused.value.where == f"--out {tmp_path / name}"
    assert steps == []


def test_a_run_reports_progress_and_replaces_an_earlier_report(two_chapters, tmp_path):
    (tmp_path / "index.html").write_text("of another run")
    seen = []
    result = demo(tmp_path, lambda share, step: seen.append((share, step)))
    assert [share for share, _ in seen] == [0, 0.5, 1]
    assert all(step for _, step in seen)
    assert set(result.files) == set(tmp_path.iterdir())
    assert "Five exact answers" in result.report.read_text()


def test_the_readme_has_the_numbers_of_the_demo(facts):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    boundaries = [f"{i['start']:.4f}" for i in facts["digits"]["intervals"][1:]]
    assert f"boundaries at {', '.join(boundaries)}" in readme
    assert f"{facts['encounter']['grid']} samples" in readme
    (region,) = facts["encounter"]["unsampled"]
    assert f"{region['square_feet']:,.0f} square feet" in readme


def test_the_loan_page_shows_no_classes(demo_output):
    text = (demo_output[0] / "loan.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(found[1])["decisions"] is None
    assert [curve["name"] for curve in json.loads(found[1])["curves"]] == ["score", "premium"]

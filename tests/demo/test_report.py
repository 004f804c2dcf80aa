"""The report of the demonstration: whole, alone, and readable by everybody."""

import base64
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from exactline import cli
from exactline.demo import run as demo
from exactline.demo.chapter import number
from exactline.errors import FileError

PNG = b"\x89PNG\r\n\x1a\n"
VOID = {"meta", "link", "img", "br"}


class Read(HTMLParser):
    """The elements of a page; an element left open or closed twice is refused."""

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
def page(made):
    return Read(made[0] / "index.html")


@pytest.fixture
def two_chapters(monkeypatch):
    """A shorter demonstration."""
    chosen = dict(list(demo.__globals__["PARTS"].items())[:2])
    monkeypatch.setitem(demo.__globals__, "PARTS", chosen)


def test_every_file_that_is_told_is_there_and_no_other(made):
    folder, told = made
    assert {Path(name) for name in told["files"]} == set(folder.iterdir())
    assert told["report"] == str(folder / "index.html")
    assert told["not_drawn"] is None
    for picture in folder.glob("*.png"):
        assert picture.read_bytes().startswith(PNG)


def test_the_report_asks_nothing_of_the_network(made, page):
    text = (made[0] / "index.html").read_text()
    assert "http://" not in text
    assert "https://" not in text
    assert page.all("script") == []
    (policy,) = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


def test_links_lead_somewhere(made, page):
    ids = [attrs["id"] for _, attrs in page.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [a["href"] for a in page.all("a")]
    assert len(targets) > 15
    for target in targets:
        assert target[1:] in ids if target.startswith("#") else (made[0] / target).is_file()


def test_pictures_are_inside_and_say_what_they_show(made, page):
    names = ("loan", "digits", "gradients", "errors", "encounter", "plane")
    images = page.all("img")
    assert len(images) == len(names)
    for image, name in zip(images, names, strict=True):
        kind, data = image["src"].split(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data) == (made[0] / f"{name}.png").read_bytes()
        assert len(image["alt"]) > 20
        assert int(image["width"]) > 0
    assert ">alpha (358 pieces)</text>" in (made[0] / "digits.svg").read_text()  # letters stay letters


def test_the_numbers_of_the_report_are_those_computed(page, facts):
    text = " ".join(page.text)
    assert f"{facts['digits']['pieces']:,} pieces" in text
    for interval in facts["digits"]["intervals"]:
        assert f"{interval['start']:.6f}" in text
    for hidden in facts["encounter"]["hidden"]:
        assert f"{hidden['square_feet']:,.0f} square feet" in text
    for rule in facts["gradients"]["rules"]:
        assert f"{100 * rule['error']:.2g} %" in text
    for network in facts["plane"]["networks"].values():
        assert f"{network['polygons']:,}" in text
        assert all(f"{100 * share:.3f} %" in text for share in network["shares"].values())
    assert f"{number(1 / 3)} and {number(2 / 3)}" in text


def test_the_report_s_python_runs(made, page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    codes = re.findall(r"<pre><code>(.*?)</code></pre>", (made[0] / "index.html").read_text(), re.DOTALL)
    assert len(codes) == 5
    for code in codes:
        exec(code.replace("&quot;", '"').replace("&#x27;", "'").replace("&gt;", ">"), {})


def test_the_command_ends_by_saying_where_the_report_is(two_chapters, monkeypatch, capsys, tmp_path):
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
    found = demo(tmp_path)
    hint = 'Pictures need matplotlib. Try: pip install "exactline[plot]"'
    assert found.not_drawn == hint == found.document()["not_drawn"]
    assert {f.name for f in tmp_path.iterdir()} == {"index.html", "loan.html", "digits.html"}
    page = Read(tmp_path / "index.html")
    assert page.all("img") == []
    assert f"No pictures: {hint}" in " ".join(page.text)


@pytest.mark.parametrize("name", ["taken", "taken/below"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path, name):
    (tmp_path / "taken").write_text("a file")
    steps = []
    with pytest.raises(FileError, match="cannot be written to") as refused:
        demo(tmp_path / name, lambda share, what: steps.append(what))
    assert refused.value.where == f"--out {tmp_path / name}"
    assert steps == []


def test_a_run_tells_its_progress_and_replaces_the_one_before(two_chapters, tmp_path):
    (tmp_path / "index.html").write_text("of another run")
    seen = []
    found = demo(tmp_path, lambda share, what: seen.append((share, what)))
    assert [share for share, _ in seen] == [0, 0.5, 1]
    assert all(what for _, what in seen)
    assert set(found.files) == set(tmp_path.iterdir())
    assert "Five exact answers" in found.report.read_text()


def test_the_readme_tells_the_demonstration_s_numbers(facts):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    boundaries = [f"{i['start']:.4f}" for i in facts["digits"]["intervals"][1:]]
    assert f"boundaries at {', '.join(boundaries)}" in readme
    assert f"none of {facts['encounter']['grid']} samples sees it" in readme
    (hidden,) = facts["encounter"]["hidden"]
    assert f"a region of {hidden['square_feet']:,.0f} square feet that holds no sample" in readme

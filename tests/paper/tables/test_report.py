"""A report of tables and pictures: readable on dark and narrow screens, and without requests."""

import re

from matplotlib.figure import Figure

from exactline.paper.tables.report import BulletList, ReportHeading, ReportPicture, ReportTable, ReportText, format_html


def test_a_page_fits_dark_and_narrow_screens(tmp_path):
    Figure(figsize=(9, 2), dpi=100).savefig(tmp_path / "a.png")
    blocks = [
        ReportHeading("Head"),
        ReportText("What <this> is."),
        BulletList(("one",)),
        ReportPicture("a.png", 'a "picture"'),
        ReportTable("t", "A & B", ("x", "y"), (("1", "2"),), ("note",)),
    ]
    page = format_html("A report", blocks, tmp_path)
    assert "<p>What &lt;this&gt; is.</p>" in page
    assert "prefers-color-scheme: dark" in page
    assert 'alt="a &quot;picture&quot;" width="594" height="132"' in page  # two thirds of its pixels
    assert page.count('class="picture"') == page.count('class="wide"') == 1  # what is too wide scrolls
    assert 'aria-label="A &amp; B" tabindex="0"' in page
    assert re.findall(r"(?:src|href)=.(?!data:)", page) == []

"""The site is built without a warning, holds every page, asks nobody for anything, and is quiet in a browser."""

import json
import os
import re
import subprocess
import sys
import time
from runpy import run_path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.conftest import driver as driver
from tests.docs.pages import PAGES, ROOT
from tests.docs.pictures import resemble

OUTSIDE = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//"""
)


KIND = re.compile(r'<p class="page-kind"><strong>([^<]+)</strong>')
WORDS = [  # what users type, and the page about it
    ("heatmap", "attribution.html"),
    ("saliency", "attribution.html"),
    ("decision boundary", "tutorial-moons.html"),
    ("linear regions", "planes.html"),
    ("activation pattern", "quickstart.html"),
    ("sklearn", "recipes.html"),
    ("keras", "recipes.html"),
    ("attribution", "attribution.html"),
    ("Lipschitz", "metrics.html"),
    ("integrated gradients", "attribution.html"),
    ("robustness", "verification.html"),
    ("dead units", "metrics.html"),
    ("conductance", "attribution.html"),
    ("transformer", "smooth.html"),
    ("ONNX", "formats.html"),
    ("captum", "coming-from-captum.html"),
]
FIRST_HITS = 3  # pages that a reader sees without scrolling


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: the site is not built")
    folder = tmp_path_factory.mktemp("site")
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr + done.stdout == ""
    return folder


def test_every_page_is_there(site):
    for page in PAGES[1:]:
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), page.name


@pytest.mark.parametrize(("words", "page"), WORDS)
def test_words_of_users_are_in_the_headings_of_the_page_about_them(site, words, page):
    """The search ranks a page by its headings first; the test in a browser looks at the ranks."""
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    stems = [word.lower().removesuffix("s").removesuffix("ie").removesuffix("y") for word in words.split()]
    titled = {
        entry["location"].split("#")[0] for entry in entries if all(stem in entry["title"].lower() for stem in stems)
    }
    assert page in titled


def test_every_page_says_which_kind_it_is(site):
    """Pages of the four kinds have a line above their title; the entrances, which belong to none, have not."""
    kinds = {
        page.relative_to(site).as_posix(): KIND.findall(page.read_text())
        for page in site.rglob("*.html")
        if page.name != "404.html"
    }
    assert {page for page, found in kinds.items() if not found} == {"index.html", "gallery.html"}
    expected = {
        "Tutorial": {"sixty-seconds.html", "quickstart.html", "tutorial-moons.html", "acas.html", "regions.html"},
        "Explanation": {"exactness.html", "numerics.html", "paper.html", "training.html", "pendulum.html"},
        "Reference": {"glossary.html", "commands.html", "operators.html", "promises.html", "api/lines.html"},
        "How-to guide": {"attribution.html", "decisions.html", "planes.html", "recipes.html", "verification.html"},
    }
    for kind, pages in expected.items():
        assert pages <= {page for page, found in kinds.items() if found == [kind]}, kind


def test_notebooks_are_files_of_the_site(site):
    linked = re.findall(r'href="(examples/\w+\.ipynb)"', (site / "gallery.html").read_text())
    assert len(linked) == len(list((ROOT / "examples").glob("*.ipynb")))
    assert all((site / name).is_file() for name in linked)
    guides = "".join(page.read_text() for page in site.glob("*.html") if page.name != "gallery.html")
    assert all(f'href="{name}"' in guides for name in linked), "a notebook belongs to a tutorial or a guide too"


def test_pages_ask_nobody_for_anything(site):
    for page in site.rglob("*.html"):
        assert OUTSIDE.findall(page.read_text()) == [], page.name


def said(driver) -> list[str]:
    """What a page complained of since the last time."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] != "INFO"]


@pytest.mark.browser
@pytest.mark.slow
def test_pages_are_quiet_in_a_browser_and_their_pictures_are_seen(site, driver):
    broken = "return [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
    for page in sorted(set(site.rglob("*.html")) - {site / "404.html"}):  # that one only a server shows
        driver.get(page.as_uri())
        assert driver.execute_script(broken) == [], page.name
        assert said(driver) == [], page.name


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize(("words", "page"), WORDS)
def test_the_search_works_from_a_disk_and_finds_the_right_page_first(site, driver, words, page):
    driver.get((site / "index.html").as_uri())
    field = driver.find_element(By.CSS_SELECTOR, "[data-md-component=search-query]")
    driver.execute_script("arguments[0].focus()", field)
    field.send_keys(words)
    list_hits = """return document.querySelector(".md-search-result__meta").textContent.match(/[0-9]/) &&
        [...document.querySelectorAll("a.md-search-result__link")].map(link => link.href)"""

    def settled(driver):
        """The hits, once they are those of the whole query: the list does not change for a while."""
        before = driver.execute_script(list_hits)
        time.sleep(0.5)
        return before if before == driver.execute_script(list_hits) else None

    links = WebDriverWait(driver, 30).until(settled)
    pages = list(dict.fromkeys(re.sub(r"[?#].*", "", link) for link in links))
    assert (site / page).as_uri() in pages[:FIRST_HITS]
    assert said(driver) == []


@pytest.mark.browser
@pytest.mark.slow
def test_pictures_of_interactive_pages_are_current(driver, tmp_path):
    made = run_path(str(ROOT / "scripts" / "page_pictures.py"))
    made["photograph"](driver, made["write_pages"](tmp_path), tmp_path)
    for name in ("report_line.png", "report_plane.png"):
        assert resemble(tmp_path / name, made["FOLDER"] / name), "run python scripts/page_pictures.py"

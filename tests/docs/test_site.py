"""The site is built without a warning, holds every page, asks nobody for anything, and is quiet in a browser."""

import json
import os
import re
import subprocess
import sys

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.conftest import driver as driver
from tests.docs.pages import PAGES, ROOT

OUTSIDE = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//"""
)


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


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("heatmap", "attribution.html"),
        ("saliency", "attribution.html"),
        ("decision boundary", "tutorial-moons.html"),
        ("linear regions", "planes.html"),
        ("activation pattern", "quickstart.html"),
        ("sklearn", "recipes.html"),
        ("Keras", "recipes.html"),
        ("attribution", "attribution.html"),
        ("Lipschitz", "metrics.html"),
        ("robustness", "verification.html"),
        ("dead units", "metrics.html"),
    ],
)
def test_the_search_finds_the_words_of_users(site, words, page):
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = {entry["location"].split("#")[0] for entry in entries if words.lower() in entry["text"].lower()}
    assert page in found


def test_every_page_says_which_kind_it_is(site):
    """Pages of the four kinds have a line above their title; the entrances, which belong to none, have not."""
    without = {page.name for page in site.rglob("*.html") if 'class="page-kind"' not in page.read_text()}
    assert without == {"index.html", "gallery.html", "404.html"}


def test_notebooks_are_files_of_the_site(site):
    linked = re.findall(r'href="(examples/\w+\.ipynb)"', (site / "gallery.html").read_text())
    assert len(linked) == len(list((ROOT / "examples").glob("*.ipynb")))
    assert all((site / name).is_file() for name in linked)


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
def test_the_search_works_from_a_disk(site, driver):
    driver.get((site / "index.html").as_uri())
    field = driver.find_element(By.CSS_SELECTOR, "[data-md-component=search-query]")
    driver.execute_script("arguments[0].focus()", field)
    field.send_keys("conductance")
    found = "return [...document.querySelectorAll('a.md-search-result__link')].map(link => link.href)"
    links = WebDriverWait(driver, 30).until(lambda d: d.execute_script(found))
    assert any("attribution" in link for link in links)
    assert said(driver) == []

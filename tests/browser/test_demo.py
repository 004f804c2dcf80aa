"""The report of the demo in a browser: light and dark, wide and narrow, with every picture and link."""

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from exactline.demo import run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        short = dict(list(run.__globals__["CHAPTERS"].items())[:2])
        patch.setitem(run.__globals__, "CHAPTERS", short)
        return run(tmp_path_factory.mktemp("demo")).report


def test_the_report_is_read_in_light_and_dark_on_any_screen(page, report):
    papers = set()
    for dark, wide in ((False, 1280), (True, 1280), (False, 390)):
        page.set_screen(wide, 900, dark=dark)
        page.driver.get(report.as_uri())
        style = "return getComputedStyle(document.body)"
        paper, ink = (page.js(f"{style}.{name}") for name in ("backgroundColor", "color"))
        papers.add(paper)
        levels = [sum(map(int, colour[4:-1].split(","))) for colour in (paper, ink)]
        assert (levels[0] < levels[1]) == dark
        assert page.js("return [...document.images].every((i) => i.complete && i.naturalWidth > 0)")
        assert page.js("return document.documentElement.scrollWidth <= innerWidth")
        page.assert_quiet()
    assert len(papers) == 2


def test_pictures_keep_their_text_readable_on_a_phone_and_scroll(page, report):
    shown = "return [...document.images].map((i) => i.getBoundingClientRect().width / i.getAttribute('width'))"
    rooms = "return [...document.querySelectorAll('.picture')].map((p) => p.scrollWidth > p.clientWidth)"
    for wide, scrolls in ((390, True), (1280, False)):
        page.set_screen(wide, 844, touch=wide < 500)
        page.driver.get(report.as_uri())
        page.driver.get_log("performance")
        assert min(page.js(shown)) > 0.75
        assert page.js(rooms) == [scrolls] * len(page.js(rooms))
        assert page.js("return document.documentElement.scrollWidth <= innerWidth")


def test_a_page_to_explore_opens_from_the_report(page, report):
    page.driver.get(report.as_uri())
    page.driver.get_log("performance")
    link = page.driver.find_element(By.CSS_SELECTOR, ".pages a[href='digits.html']")
    page.js("arguments[0].click()", link)
    page.until("return document.documentElement.dataset.ready === '1'", 60)
    assert page.driver.current_url == report.with_name("digits.html").as_uri()


def test_code_unfolds_with_the_keyboard_alone(page, report):
    page.driver.get(report.as_uri())
    page.js("document.querySelector('summary').focus()")
    ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    assert page.js("return document.querySelector('details').open")
    assert "xl.restrict" in page.js("return document.querySelector('details code').textContent")

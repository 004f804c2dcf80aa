"""One headless Chromium for all tests of pages; without it they are skipped."""

import shutil

import pytest
from selenium import webdriver

from tests.browser.page import Page

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


@pytest.fixture(scope="session")
def driver():
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    chromedriver = shutil.which("chromedriver")
    if browser is None or chromedriver is None:
        pytest.skip("chromium or chromedriver is not installed (apt-get install chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture
def page(driver, tmp_path):
    """A page to open; afterwards its console must be empty and it must have fetched nothing."""
    page = Page(driver, tmp_path)
    page.set_screen()
    yield page
    page.assert_quiet()

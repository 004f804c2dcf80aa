"""Take the pictures of interactive pages that docs/report.md shows, with headless Chromium.

    python scripts/page_pictures.py

Writes docs/images/pages/report_line.png and report_plane.png. Needs chromium and chromedriver.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from selenium import webdriver

import exactline as xl
from scripts.gallery import shrink

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "images" / "pages"
SIZE = (1200, 860)  # pixels of the window
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars")


def write_pages(folder: Path) -> list[Path]:
    """Write the page of the line in docs/report.md, and the page that examples/plane.py writes."""
    images, _ = xl.zoo.digits_images()
    line = xl.restrict(xl.zoo.digits_network(), images[9], images[6])
    line.to_html(
        folder / "report_line.html", title="from one digit to another", labels=[f"digit {i}" for i in range(10)]
    )
    subprocess.run([sys.executable, ROOT / "examples" / "plane.py", folder], check=True, stdout=subprocess.DEVNULL)
    (folder / "plane.html").rename(folder / "report_plane.html")
    return [folder / "report_line.html", folder / "report_plane.html"]


def photograph(driver: webdriver.Chrome, pages: list[Path], target: Path) -> None:
    """Open pages at a fixed size, in light colours, and write a picture of each."""
    media = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    screen = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    for page in pages:
        driver.get(page.as_uri())
        driver.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 1500))")
        picture = page.with_suffix(".png")
        driver.save_screenshot(str(picture))
        shrink(picture, target / picture.name)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def main() -> None:
    """Start a browser, and take all pictures."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        with tempfile.TemporaryDirectory() as folder:
            photograph(driver, write_pages(Path(folder)), FOLDER)
    finally:
        driver.quit()


if __name__ == "__main__":
    main()

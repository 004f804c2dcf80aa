"""The page of a plane in a browser shows the library's answer, by pointer, touch and keys."""

from functools import cache

import numpy as np
import pytest
import torch
from selenium.webdriver.common.keys import Keys
from torch import nn

import exactline as xl
from exactline.plot.palette import CLASS_COLOURS, fill_colour
from exactline.plot.plane_page import write_plane_page
from tests.plot.test_plane import SQUARE, Diamond, deep, diamond

pytestmark = pytest.mark.browser


def point(page, place):
    """Point at a position in the plane."""
    page.hover(*page.js("return exactline.screen(arguments[0], arguments[1])", *map(float, place)))
    return page.info()


TITLE = """const rows = [...document.querySelectorAll("#info dt")];
return rows.find(e => e.textContent === arguments[0]).nextSibling.title"""


def active_style(page):
    return [n for n in ("regions", "decisions") if page.find(n).get_attribute("aria-pressed") == "true"]


def test_the_page_shows_the_librarys_polygons_and_classes(page, tmp_path):
    model, plane = deep()
    page.open(write_plane_page(plane, tmp_path / "a.html", labels=["a", "b", "c"]))
    mixing = np.random.default_rng(2).dirichlet([1, 1, 1], 60)
    places = mixing @ plane.outline.numpy()
    with torch.no_grad():
        best = model(torch.from_numpy(mixing) @ plane.vertices[0]).argmax(1)
    for place, polygon, label in zip(places, plane.locate(places).tolist(), best.tolist(), strict=True):
        info = point(page, place)
        assert page.js(TITLE, "polygon") == str(polygon)
        assert float(page.js(TITLE, "area")) == float(plane.areas[polygon])  # all its digits
        assert float(info["area"]) == pytest.approx(float(plane.areas[polygon]), rel=1e-5)
        assert len(info["area"]) <= 12
        assert info["class"] == "abc"[label]
        here = [[float(number) for number in page.js(TITLE, "at").split(",")]]  # the pointer is on a pixel
        shown = page.js("return exactline.outputs()")
        np.testing.assert_allclose(shown, plane.at(here)[0].numpy(), rtol=0, atol=1e-11)
        inside = [float(b.get_attribute("title")) for b in page.driver.find_elements("css selector", "#inputs b")]
        np.testing.assert_allclose(inside, plane.lift(here)[0].numpy(), rtol=0, atol=1e-11)
    assert active_style(page) == ["regions"]
    assert not page.find("decisions").get_attribute("disabled")


def test_the_page_names_the_unit_of_the_nearest_edge(page, tmp_path):
    plane = xl.restrict_plane(nn.ReLU(), SQUARE)  # plane coordinates from 0 to 2
    page.open(plane.to_html(tmp_path / "a.html"))
    info = [point(page, at) for at in ([1.5, 1.1], [0.9, 0.3], [1.95, 1.5], [2.5, 2.5])]
    assert [s.get("nearest edge") for s in info] == ["relu, unit 1", "relu, unit 0", "outline", None]
    assert [s["area"] for s in info[:3]] == ["1", "1", "1"]
    assert info[3]["polygon"] == "none: outside"


def test_a_long_plane_is_no_line_on_a_page_either(page, tmp_path):
    plane = xl.grid(Diamond(), [0.0, 0.0], box=((-2000, 2000), (-2, 2)))
    page.open(plane.to_html(tmp_path / "a.html", points={"p": [900.0, 1.5]}))
    info = point(page, [900, 1.5])
    assert [float(number) for number in info["at"].split(",")] == pytest.approx([900, 1.5], rel=1e-3)
    assert page.js(TITLE, "polygon") == str(plane.locate([[900.0, 1.5]]).item())
    assert info["class"] == "0"
    rows = page.download("csv").read_text().splitlines()[1:]
    corners = [[tuple(map(float, c.split())) for c in row.split(",")[2].split("; ")] for row in rows]
    expected = np.split(plane.corners[plane.rings].numpy(), plane.offsets[1:-1].tolist())
    assert corners == [list(map(tuple, ring.tolist())) for ring in expected]  # to the last bit


def test_every_control_works_in_both_colours(page, tmp_path):
    path = diamond().to_html(tmp_path / "a.html", style="decisions", points={"here": [0.5, 0.5]})
    for dark in (False, True):
        page.set_screen(dark=dark)
        page.open(path)
        page.keys(Keys.ARROW_LEFT, Keys.ARROW_UP, "+", "=", "-", on="overlay")
        assert page.text("where") == "at the cross in the middle"
        page.press("regions", "in", "out")
        for box in page.driver.find_elements("css selector", "#nodes input"):
            box.click()
        page.wheel(100, 100, -120)
        page.drag((300, 300), (330, 280))
        page.press("theme", "all", "decisions")
        assert active_style(page) == ["decisions"]
        assert page.js("return document.documentElement.dataset.theme") == ("light" if dark else "dark")
        assert point(page, [0, 0])["class"] == "1"  # shown whole again, the middle is the diamond's
        assert page.text("where") == "under the pointer"
        assert page.text("legend").replace(" ", "") == "087.5%112.5%"
    assert page.download("png").read_bytes().startswith(b"\x89PNG")


def test_classes_have_their_colours_where_they_are(page, tmp_path):
    page.open(diamond().to_html(tmp_path / "a.html", style="decisions"))
    rng = np.random.default_rng(0)
    for place in rng.uniform(-1.9, 1.9, (40, 2)):
        if abs(np.abs(place).sum() - 1) < 0.1 or np.abs(place).min() < 0.1:
            continue
        x, y = page.js("return exactline.screen(arguments[0], arguments[1])", *place.tolist())
        seen = page.pixels("base", round(x) - 4, round(y) - 4, 8, 8).reshape(-1, 3)
        wanted = np.array(
            [int(fill_colour(CLASS_COLOURS[int(np.abs(place).sum() < 1)])[i : i + 2], 16) for i in (1, 3, 5)]
        )
        assert (np.abs(seen - wanted).max(1) <= 3).sum() >= 16  # the pattern has the rest


def test_two_fingers_zoom_about_what_is_between_them(page, tmp_path):
    page.open(diamond().to_html(tmp_path / "a.html"))
    page.set_screen(touch=True)
    page.wait_drawn()
    x, y = page.js("return exactline.screen(0.5, 0.25)")
    before = page.js("return exactline.view.zoom")
    page.pinch(x, y, 30, 120)
    assert page.js("return exactline.view.zoom") == pytest.approx(4 * before, rel=0.02)
    assert page.js("return exactline.screen(0.5, 0.25)") == pytest.approx([x, y], abs=3)


@pytest.mark.parametrize(
    ("start", "end", "shift"), [(30, 120, (0, 0)), (120, 40, (0, 0)), (30, 90, (35, -20))], ids=["in", "out", "moving"]
)
def test_a_pinch_on_a_phone_zooms_the_plane_and_not_the_page(page, tmp_path, start, end, shift):
    page.set_screen(390, 844, touch=True)
    page.open(diamond().to_html(tmp_path / "a.html"))
    x, y = page.js("return exactline.screen(0.5, 0.25)")
    zoom, scrolled = page.js("return [exactline.view.zoom, scrollY]")
    page.pinch(x, y, start, end, shift=shift)
    assert page.js("return exactline.view.zoom") == pytest.approx(end / start * zoom, rel=0.03)
    under = page.js("return exactline.screen(0.5, 0.25)")  # stays between the fingers
    assert under == pytest.approx([x + shift[0], y + shift[1]], abs=3)
    assert page.js("return [visualViewport.scale, scrollY]") == [1, scrolled]
    before = page.js("return exactline.view.zoom")
    page.press("all")
    assert page.js("return exactline.view.zoom") != before


def test_the_axes_have_names_and_the_input_under_the_pointer_is_an_image(page, tmp_path):
    images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plane = xl.restrict_plane(nn.Sequential(nn.Flatten(), nn.Linear(64, 3).double(), nn.ReLU()), images)
    page.open(plane.to_html(tmp_path / "a.html"))
    place = plane.outline.mean(0).tolist()
    point(page, place)
    shown = page.pixels(page.driver.find_element("css selector", "#inputs canvas"), 0, 0, 8, 8)[:, :, 0]
    expected = 255 * plane.lift([place])[0, 0].numpy()
    np.testing.assert_allclose(shown, expected, atol=0.51)
    grid = xl.grid(nn.ReLU(), [0.0, 0.0], box=((-1, 1), (-2, 2)))
    page.open(grid.to_html(tmp_path / "b.html", features=["speed (m/s)", "height (m)"]))
    assert [row.text for row in page.driver.find_elements("css selector", "#inputs .row span")] == [
        "speed (m/s)",
        "height (m)",
    ]
    strip = page.pixels("overlay", 0, page.js("return document.getElementById('overlay').height") - 40, 600, 40)
    assert (strip < 200).any(2).sum() > 100  # ticks, numbers and the name of the axis


def test_a_page_without_values_or_breaks(page, tmp_path):
    page.open(xl.restrict_plane(nn.Identity(), SQUARE, values=False).to_html(tmp_path / "a.html"))
    page.press("decisions")
    assert active_style(page) == ["regions"]
    assert page.find("decisions").get_attribute("disabled")
    assert page.text("nodes") == ""
    assert point(page, [1, 1])["polygon"] == "0 of 1, 4 corners"


def test_names_are_escaped(page, tmp_path):
    evil = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><!-- \u2028 %DATA% &amp; '\""
    plane = diamond()
    renamed = plane.with_network(plane.network)
    object.__setattr__(renamed, "names", tuple(evil for _ in plane.names))
    page.open(write_plane_page(renamed, tmp_path / "a.html", labels=[evil, "b"], points={evil: [0.0, 0.0]}, title=evil))
    assert page.text("title") == page.driver.title == evil
    assert evil in point(page, [0.01, 0.02])["nearest edge"]
    assert evil in page.text("legend")
    assert page.js("return [window.hacked ?? null, document.images.length, document.scripts.length]") == [None, 0, 1]


@cache
def many_polygons():
    torch.manual_seed(5)
    layers = nn.Sequential(nn.Linear(2, 180), nn.ReLU(), nn.Linear(180, 180), nn.ReLU(), nn.Linear(180, 6)).double()
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0, 2 / layer.weight.shape[1] ** 0.5)
            nn.init.normal_(layer.bias, 0, 1)
    return xl.grid(layers, [0.0, 0.0], box=((-4, 4), (-4, 4)))


FRAMES = """const done = arguments[0], times = []; let last = performance.now();
(function step() {
  times.push(performance.now() - last); last = performance.now();
  if (times.length < 30) exactline.move(5, 3); else if (times.length < 60) exactline.zoom(1.03, 400, 300);
  if (times.length < 90) requestAnimationFrame(step); else done(times);
})()"""


@pytest.mark.slow
def test_50_000_polygons_move_at_once_and_are_drawn_in_slices(page, tmp_path):
    plane = many_polygons()
    assert len(plane) > 50_000
    page.open(plane.to_html(tmp_path / "a.html"))
    point(page, [0.3, 0.4])
    assert page.js(TITLE, "polygon") == str(plane.locate([[0.3, 0.4]]).item())
    frames = page.driver.execute_async_script(FRAMES)
    page.wait_drawn()
    took = page.js("return exactline.timings")
    size = (tmp_path / "a.html").stat().st_size / 1e6
    moving, slices = (np.median(took[name]) for name in ("shows", "slices"))
    print(
        f"{len(plane):,} polygons: to move {moving:.1f} ms, to draw {took['all']:.0f} ms in slices of {slices:.1f} ms, "
        f"between frames {np.median(frames):.1f} ms, longest {max(frames):.1f} ms"
    )
    assert np.median(frames) < 100
    assert size < 15
    assert moving < 100

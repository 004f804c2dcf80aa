"""The page of a line in a browser shows the library's numbers, by slider, keys, pointer and zoom."""

import csv
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from selenium.webdriver.common.keys import Keys
from torch import nn

import exactline as xl
from exactline import zoo

pytestmark = pytest.mark.browser
LABELS = [f"digit {i}" for i in range(10)]


@cache
def digits():
    images, _ = zoo.digits_images()
    return xl.restrict(zoo.digits_network(), images[9], images[6])


@cache
def loan():
    return xl.restrict(zoo.loan_network(), *zoo.loan_line())


@cache
def digit_decisions():
    return digits().decisions()


def output_values(page):
    """The values that the page shows, by output."""
    cells = page.js("return [...document.querySelectorAll('#curves b')].map(b => [b.dataset.output, b.textContent])")
    return np.array([float(text) for _, text in sorted(cells, key=lambda cell: int(cell[0]))])


def test_values_class_margin_and_piece_are_the_librarys(page, tmp_path):
    line, decisions = digits(), digit_decisions()
    page.open(line.to_html(tmp_path / "a.html", labels=LABELS))
    places = [*np.random.default_rng(0).uniform(0, 1, 12).tolist(), 0.0, 1.0, float(line.alphas[77]), 1e-300]
    for alpha in places:
        page.type_alpha(repr(alpha))
        values = line.at(alpha).numpy()
        np.testing.assert_allclose(output_values(page), values, rtol=0, atol=1e-12)
        info, interval = page.info(), decisions.at(alpha)
        assert info["class"] == f"digit {interval.label}"
        others = np.delete(values, interval.label)
        margin, runner_up = info["margin"].split(" over ")
        assert float(margin) == pytest.approx(values[interval.label] - others.max(), abs=1e-12)
        assert runner_up == LABELS[[i for i in range(10) if i != interval.label][int(others.argmax())]]
        piece = min(int(np.searchsorted(line.alphas.numpy(), alpha, side="right")) - 1, len(line) - 1)
        assert info["piece"] == f"{piece} (of 0 to {len(line) - 1})"
        assert [float(word) for word in info["interval"].split()[1::2]] == [interval.start, interval.stop]
        for end, at in (("from", piece), ("to", piece + 1)):
            assert shows_break(info[end], line, at)
    page.type_alpha(repr(float(line.alphas[77])))
    np.testing.assert_array_equal(output_values(page), line.values[77].numpy())  # at a break, to the last bit


def shows_break(shown, line, at):
    """Whether the page shows a break by its alpha, to the last bit, and its origin."""
    alpha, text = shown.split(": ")
    origin = line.origins[at]
    expected = "an end of the line" if origin is None else f"{origin.node}, unit {origin.unit}"
    shared = "" if origin is None or origin.count == 1 else f", first of {origin.count} crossings"
    return (float(alpha), text) == (float(line.alphas[at]), expected + shared)


def test_keys_move_the_slider_and_land_on_breaks_and_boundaries(page, tmp_path):
    line, decisions = digits(), digit_decisions()
    page.open(line.to_html(tmp_path / "a.html"))
    page.keys(Keys.HOME, on="slider")
    assert page.state()["cursor"] == 0
    for expected in line.alphas[1:6].tolist():
        page.keys(Keys.ARROW_RIGHT, shift=True)
        assert page.state()["cursor"] == expected
    page.keys(Keys.ARROW_LEFT, shift=True)
    assert page.state()["cursor"] == float(line.alphas[4])
    page.keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ARROW_DOWN)
    assert page.state()["cursor"] == pytest.approx(0.01)
    page.keys(Keys.HOME)
    for expected in decisions.boundaries.tolist():
        page.keys(Keys.PAGE_UP)
        assert page.state()["cursor"] == expected
        assert page.info()["class"] == str(decisions.at(expected).label)
    page.keys(Keys.PAGE_DOWN)
    assert page.state()["cursor"] == decisions.boundaries.tolist()[-2]
    page.keys(Keys.END)
    values = [page.find("slider").get_attribute(f"aria-value{name}") for name in ("now", "min", "max", "text")]
    assert values[:3] == ["1", "0", "1"]
    assert "piece 357" in values[3]
    page.until("return document.getElementById('live').textContent.startsWith('alpha 1, class 3, piece 357')")


def test_the_slider_can_be_dragged_and_reached_by_tab(page, tmp_path):
    page.open(loan().to_html(tmp_path / "a.html"))
    names = []
    for _ in range(20):
        page.keys(Keys.TAB)
        names.append(page.js("return document.activeElement.id"))
        if names[-1] == "slider":
            break
    assert names[-1] == "slider"
    assert page.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert {"theme", "in", "out", "all", "piece", "csv", "png"} <= set(names)
    box = page.state()["box"]
    page.drag((box["left"] + 10, 12), (box["left"] + 0.25 * box["wide"], 12), on="slider")
    assert page.state()["cursor"] == pytest.approx(0.25, abs=2 / box["wide"])
    page.drag((box["left"] + 0.6 * box["wide"], 60), (box["left"] + 0.6 * box["wide"], 60))  # a click places it too
    assert page.state()["cursor"] == pytest.approx(0.6, abs=2 / box["wide"])


def test_every_way_to_zoom(page, tmp_path):
    line = digits()
    page.open(line.to_html(tmp_path / "a.html"))
    box = page.state()["box"]
    middle, far = box["left"] + box["wide"] / 2, box["left"] + box["wide"]
    page.wheel(middle, 100, -300)
    width = page.state()["width"]
    assert width < 0.6
    page.keys("+", on="slider")
    assert page.state()["width"] == pytest.approx(width / 1.5)
    page.keys("-", "-")
    page.press("in", "out", "all")
    assert (page.state()["lo"], page.state()["width"]) == (0, 1)
    page.drag((box["left"] + 0.2 * box["wide"], 100), (box["left"] + 0.4 * box["wide"], 150), shift=True)
    assert (page.state()["lo"], page.state()["width"]) == pytest.approx((0.2, 0.2), abs=2 / box["wide"])
    page.drag((middle, 100), (far, 100))  # moves: what was in the middle is at the right end
    assert page.state()["lo"] == pytest.approx(0.1, abs=2 / box["wide"])
    page.press("all")
    page.drag((box["left"] + 0.5 * box["wide"], 15), (box["left"] + 0.75 * box["wide"], 15), on="whole")
    assert (page.state()["lo"], page.state()["width"]) == pytest.approx((0.5, 0.25), abs=4 / box["wide"])
    page.drag((box["left"] + 0.6 * box["wide"], 15), (box["left"] + 0.4 * box["wide"], 15), on="whole")
    assert (page.state()["lo"], page.state()["width"]) == pytest.approx((0.3, 0.25), abs=4 / box["wide"])
    page.keys("0", on="slider")
    page.set_screen(touch=True)
    page.wait_drawn()
    page.pinch(middle, 100, 40, 160)
    assert (page.state()["lo"], page.state()["width"]) == pytest.approx((0.375, 0.25), abs=0.01)


def test_one_piece_fills_the_picture_and_a_range_of_1e_12_keeps_its_digits(page, tmp_path):
    line, decisions = digits(), digit_decisions()
    page.open(line.to_html(tmp_path / "a.html"))
    page.type_alpha(repr(float((line.alphas[200] + line.alphas[201]) / 2)))
    page.press("piece")
    state, (start, stop) = page.state(), line.alphas[200:202].tolist()
    assert state["width"] == pytest.approx(1.3 * (stop - start))
    assert page.text("range").endswith(" 2 breaks")
    edge = decisions.boundaries.tolist()[0]
    page.js("exactline.show(arguments[0] - 4e-13, 1e-12); exactline.setCursor(arguments[0])", edge)
    page.wait_drawn()
    state, box = page.state(), page.state()["box"]
    assert state["width"] == pytest.approx(1e-12, rel=1e-3)
    for share, label in ((0.1, decisions[0].label), (0.9, decisions[1].label)):
        page.hover(box["left"] + share * box["wide"], 60)
        info = page.info("tip")
        assert float(info["alpha"]) == pytest.approx(state["lo"] + share * 1e-12, abs=2e-15)
        assert info["class"] == str(label)
    page.press("fit")
    assert page.find("fit").get_attribute("aria-pressed") == "true"
    page.js("exactline.show(arguments[0], 1e-30)", edge)  # there is an end to it
    page.wait_drawn()
    assert 0 < page.state()["width"] < 1e-14


def test_the_tip_shows_alpha_margin_class_piece_and_origin(page, tmp_path):
    line, decisions = digits(), digit_decisions()
    page.open(line.to_html(tmp_path / "a.html", labels=LABELS))
    box = page.state()["box"]
    for x in np.linspace(1, box["wide"] - 1, 25).tolist():
        page.hover(box["left"] + x, 80)
        info = page.info("tip")
        alpha = float(info["alpha"])
        assert alpha == pytest.approx(x / box["wide"], abs=1e-6)  # pointers have float32 places
        best, second = line.at(alpha).sort(descending=True).values[:2].tolist()
        assert float(info["margin"].split()[0]) == pytest.approx(best - second, abs=1e-12)
        assert info["class"] == f"digit {decisions.at(alpha).label}"
        assert int(info["piece"].split()[0]) == int(torch.searchsorted(line.alphas, alpha, right=True)) - 1
        near = int((line.alphas - alpha).abs().argmin())
        assert shows_break(info["nearest break"], line, near)
    assert page.js("return !document.getElementById('tip').hidden")


def test_the_image_at_the_slider_is_the_point(page, tmp_path):
    line = digits()
    page.open(line.to_html(tmp_path / "a.html"))
    page.type_alpha("0.3")
    point = line.lines.at(torch.tensor([0]), torch.tensor([0.3], dtype=torch.float64))[0][0].numpy().reshape(8, 8, 1)
    got = page.pixels(page.driver.find_element("css selector", ".here canvas"), 0, 0, 8, 8)
    assert np.abs(got - 255 * point).max() <= 0.5 + 1e-9


def test_a_colour_image_and_a_second_input_as_a_table(page, tmp_path):
    class Two(nn.Module):
        def forward(self, image, more):
            return torch.relu(image.mean((1, 2, 3))[:, None] - more)

    start, end = torch.zeros(3, 5, 4), torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(0))
    line = xl.restrict(Two(), (start, torch.tensor([0.1, 0.2])), (end, torch.tensor([0.3, 0.2])))
    page.open(line.to_html(tmp_path / "a.html"))
    page.type_alpha("0.5")
    got = page.pixels(page.driver.find_element("css selector", ".here canvas"), 0, 0, 4, 5)
    assert np.abs(got - 255 * 0.5 * end.double().numpy().transpose(1, 2, 0)).max() <= 0.5 + 1e-9
    rows = (
        "return [...document.querySelectorAll('#inputs tbody tr')].map(r => [r.className, r.children[2].dataset.value])"
    )
    found = page.js(rows)
    assert [name for name, _ in found] == ["changed", ""]
    expected = [0.5 * (np.float64(np.float32(0.1)) + np.float64(np.float32(0.3))), float(np.float32(0.2))]
    assert [float(value) for _, value in found] == pytest.approx(expected, abs=1e-15)


def test_the_table_of_features_follows_the_slider_under_the_names_given(page, tmp_path):
    line = xl.restrict(nn.Linear(3, 2).double(), [20.0, 1.5, 30.0], [30.0, 1.5, 50.0])
    page.open(line.to_html(tmp_path / "a.html", features=["age", "rate", "income"]))
    page.type_alpha("0.1")
    script = """return [...document.querySelectorAll("#inputs tbody tr")]
        .map(row => [row.className, ...[...row.children].map(cell => cell.textContent)])"""
    assert page.js(script) == [
        ["changed", "age", "20", "21", "30"],
        ["", "rate", "1.5", "1.5", "1.5"],
        ["changed", "income", "30", "32", "50"],
    ]
    assert "2 of 3 features change" in page.text("inputs")


def test_hidden_layers_are_skipped(page, tmp_path):
    line = digits()
    page.open(line.to_html(tmp_path / "a.html"))
    boxes = page.driver.find_elements("css selector", "#nodes input")
    for box in boxes[:-1]:
        box.click()
    page.keys(Keys.HOME, on="slider")
    final = [i for i, origin in enumerate(line.origins) if origin is not None and origin.node == "relu_2"]
    for at in final[:3]:
        page.keys(Keys.ARROW_RIGHT, shift=True)
        assert page.state()["cursor"] == float(line.alphas[at])
    assert 3 < len(final) < len(line) / 10


def test_the_files_hold_the_visible_range(page, tmp_path):
    line, decisions = digits(), digit_decisions()
    page.open(line.to_html(tmp_path / "a.html", labels=["=1+1", '"quoted, name"', *LABELS[2:]], title="a/b: c"))
    page.js("exactline.show(0.4, 0.1)")
    page.wait_drawn()
    file = page.download("csv")
    assert file.name == "a-b-c.csv"
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert list(rows[0])[7:10] == ["'=1+1", '"quoted, name"', "digit 2"]
    assert [rows[0]["kind"], rows[-1]["kind"]] == ["edge", "edge"]
    inside = torch.nonzero((line.alphas >= 0.4) & (line.alphas <= 0.5)).flatten().tolist()
    assert [row["kind"] for row in rows[1:-1]] == ["break"] * len(inside)
    for row, i in zip(rows[1:-1], inside, strict=True):
        origin = line.origins[i]
        assert float(row["alpha"]) == float(line.alphas[i])
        assert (row["node"], int(row["unit"]), int(row["count"])) == (origin.node, origin.unit, origin.count)
        assert [float(v) for v in list(row.values())[7:]] == line.values[i].tolist()
        assert row["class"] == f"digit {decisions.at(float(line.alphas[i])).label}"
    for row in (rows[0], rows[-1]):
        values = [float(v) for v in list(row.values())[7:]]
        assert values == pytest.approx(line.at(float(row["alpha"])).tolist(), abs=1e-12)
    picture = page.download("png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20], "big") == page.js("return document.getElementById('base').width")


def test_the_theme_follows_the_system_until_the_reader_chooses(page, tmp_path):
    path = loan().to_html(tmp_path / "a.html")

    def corner():
        return page.pixels("base", 2, 2, 1, 1).flatten().tolist()

    page.set_screen(dark=True)
    page.open(path)
    assert corner() == [0x15, 0x17, 0x1B]
    page.set_screen(dark=False)
    page.wait_drawn()
    assert corner() == [255, 255, 255]
    page.press("theme")
    assert (page.js("return document.documentElement.dataset.theme"), page.text("theme")) == ("dark", "light page")
    page.set_screen(dark=True)
    page.set_screen(dark=False)
    page.wait_drawn()
    assert corner() == [0x15, 0x17, 0x1B]


def test_hostile_names_are_escaped(page, tmp_path):
    evil = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><!-- \u2028 %DATA% &amp; '\""
    line = loan()
    line = replace(line, names=tuple(f"{evil}{i}" for i in range(len(line.names))))
    page.open(line.to_html(tmp_path / "a.html", labels=[evil, "b"], features=[evil, evil], title=evil))
    page.type_alpha("0.9")
    assert page.js("return [window.hacked ?? null, document.images.length, document.scripts.length]") == [None, 0, 1]
    assert page.text("title") == page.driver.title == evil
    assert page.info()["class"] == evil
    assert evil in page.info()["from"]
    assert evil in page.text("nodes")
    page.hover(300, 80)
    assert evil in page.info("tip")["nearest break"]


def test_a_line_without_its_network_and_without_values(page, tmp_path):
    line = digits()
    line.save(tmp_path / "a.safetensors")
    again = xl.Restriction.load(tmp_path / "a.safetensors")
    page.open(again.to_html(tmp_path / "a.html"))
    page.type_alpha("0.37")
    np.testing.assert_allclose(output_values(page), line.at(0.37).numpy(), rtol=0, atol=1e-12)
    assert page.info()["class"] == str(digit_decisions().at(0.37).label)
    page.open(replace(again, stored_values=None).to_html(tmp_path / "b.html"))
    assert "The values were not kept" in page.text("notes")
    page.keys(Keys.HOME, on="slider")
    page.keys(Keys.ARROW_RIGHT, shift=True)
    assert page.state()["cursor"] == float(line.alphas[1])
    assert set(page.info()) == {"piece", "from", "to"}
    assert page.download("csv").read_text().splitlines()[0] == "alpha,kind,piece,node,unit,count"


def test_a_line_that_was_stopped_ends_where_it_was(page, tmp_path):
    images, _ = zoo.digits_images()
    line = xl.restrict(zoo.digits_network(), images[9], images[6], max_breaks=40)
    page.open(line.to_html(tmp_path / "a.html"))
    page.keys(Keys.END, on="slider")
    assert page.state()["cursor"] == line.reached < 1
    assert "stopped" in page.text("notes")
    page.type_alpha("0.99999")
    assert page.find("alpha").get_attribute("aria-invalid") == "true"
    assert "Give a number" in page.text("alpha-error")


def test_values_that_are_not_finite_leave_a_gap(page, tmp_path):
    values = digits().values.clone()
    values[100, 3], values[150, 4] = float("inf"), float("nan")
    page.open(replace(digits(), stored_values=(values,)).to_html(tmp_path / "a.html"))
    assert "not finite" in page.text("notes")
    page.type_alpha("0.9")
    np.testing.assert_allclose(output_values(page), digits().at(0.9).numpy(), rtol=0, atol=1e-12)
    page.press("in", "out", "all")


def test_the_page_fits_a_telephone(page, tmp_path):
    page.set_screen(400, 800, touch=True)
    page.open(digits().to_html(tmp_path / "a.html"))
    assert page.js("return document.documentElement.scrollWidth") <= 400
    assert page.state()["box"]["wide"] > 300


def test_tables_fit_a_phone_and_keep_all_digits_in_their_titles(page, tmp_path):
    page.set_screen(390, 844, touch=True)
    page.open(digits().to_html(tmp_path / "a.html", image=False))
    page.js("for (const d of document.querySelectorAll('details')) d.open = true")
    fits = "return [...document.querySelectorAll('.scroll')].every((e) => e.scrollWidth <= e.clientWidth)"
    assert page.js(fits)
    cells = "[...row.cells].map((cell) => [cell.textContent, cell.title])"
    rows = page.js(f"return [...document.querySelectorAll('#intervals tr')].map((row) => {cells})")
    for (start, stop, _, margin, _), interval in zip(rows, digit_decisions(), strict=True):
        shown = (interval.start, interval.stop, interval.margin)
        for (text, title), value in zip((start, stop, margin), shown, strict=True):
            assert float(title) == value
            assert float(text) == pytest.approx(value, rel=1e-5)
            assert len(text) <= 9

"""One palette: classes are distinct for every kind of colour vision, on light and dark paper, as lines and as fills."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from exactline.plot import palette
from exactline.plot.attribution import DARK_HEAT_COLOURS, HEAT_COLOURS
from exactline.plot.palette import CLASS_COLOURS, DARK_CLASS_COLOURS, DARK_PAPER, LIGHT_PAPER, fill_colour
from tests.plot.test_style import VISION, lab

FILLS = tuple(map(fill_colour, CLASS_COLOURS))
DARK_FILLS = tuple(fill_colour(colour, dark=True) for colour in DARK_CLASS_COLOURS)
MIN_CONTRAST = 3.0  # of graphics to their background: WCAG 2.1, 1.4.11


def luminance(colour):
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, two):
    low, high = sorted(map(luminance, (one, two)))
    return (high + 0.05) / (low + 0.05)


def ciede2000(one, two):
    """The CIE's colour difference of 2000 between two colours in CIELAB; 1 can just be noticed side by side."""
    (l1, a1, b1), (l2, a2, b2) = one, two
    mean = ((np.hypot(a1, b1) + np.hypot(a2, b2)) / 2) ** 7
    stretch = 1.5 - 0.5 * np.sqrt(mean / (mean + 25**7))
    a1, a2 = a1 * stretch, a2 * stretch
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180
    light, chroma, hue = (l1 + l2) / 2, (c1 + c2) / 2, np.radians((h1 + turn / 2) % 360)
    weight = 1 - 0.17 * np.cos(hue - np.radians(30)) + 0.24 * np.cos(2 * hue)
    weight += 0.32 * np.cos(3 * hue + np.radians(6)) - 0.2 * np.cos(4 * hue - np.radians(63))
    d_light = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    d_chroma = (c2 - c1) / (1 + 0.045 * chroma)
    d_hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn) / 2) / (1 + 0.015 * chroma * weight)
    angle = np.radians(60 * np.exp(-(((np.degrees(hue) - 275) / 25) ** 2)))
    rotation = -2 * np.sqrt(chroma**7 / (chroma**7 + 25**7)) * np.sin(angle)
    return float(np.sqrt(d_light**2 + d_chroma**2 + d_hue**2 + rotation * d_chroma * d_hue))


def test_the_difference_is_that_of_the_published_examples():
    # pairs 1, 4, 17 and 25 of Sharma, Wu and Dalal (2005)
    for one, two, expected in (
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1.3802, -84.2814), (50, 0, -82.7485), 1.0),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ):
        assert ciede2000(one, two) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize(
    ("colours", "any_two", "neighbours"),
    [(CLASS_COLOURS, 6.5, 10), (DARK_CLASS_COLOURS, 6.5, 10), (FILLS, 4.3, 6.5), (DARK_FILLS, 4.3, 6.5)],
    ids=["light", "dark", "light fills", "dark fills"],
)
def test_classes_are_distinct(colours, any_two, neighbours, vision):
    seen = [lab(colour, vision) for colour in colours]
    for (i, one), (j, two) in combinations(enumerate(seen), 2):
        is_near = j - i in (1, len(seen) - 1) or j < 4  # all pairs of the first four
        assert ciede2000(one, two) > (neighbours if is_near else any_two), (colours[i], colours[j])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize(
    ("colours", "paper"), [(HEAT_COLOURS, LIGHT_PAPER), (DARK_HEAT_COLOURS, DARK_PAPER)], ids=["light", "dark"]
)
def test_heat_maps_show_size_and_sign(colours, paper, vision):
    middle = len(colours) // 2
    steps = [ciede2000(lab(colour, vision), lab(paper, vision)) for colour in colours]
    assert steps[middle] < 5  # 0 has the colour of the paper
    for side in (steps[middle::-1], steps[middle:]):
        assert all(b - a > 6 for a, b in pairwise(side)), side
    for low, high in zip(colours[:middle], colours[:middle:-1], strict=True):
        assert ciede2000(lab(low, vision), lab(high, vision)) > 12, (low, high)


@pytest.mark.parametrize(("colours", "paper"), [(CLASS_COLOURS, LIGHT_PAPER), (DARK_CLASS_COLOURS, DARK_PAPER)])
def test_every_colour_stands_out_from_its_paper(colours, paper):
    assert min(contrast(colour, paper) for colour in colours) >= MIN_CONTRAST


def test_points_stand_out_from_the_fill_of_their_class():
    pairs = [*zip(FILLS, CLASS_COLOURS, strict=True), *zip(DARK_FILLS, DARK_CLASS_COLOURS, strict=True)]
    for fill, point in pairs:  # the rim has the colour of the paper
        assert ciede2000(lab(fill, "usual"), lab(point, "usual")) > 15


def test_text_can_be_read_on_every_colour():
    for colour in (*CLASS_COLOURS, *DARK_CLASS_COLOURS, *FILLS, *DARK_FILLS):
        assert contrast(palette.text_colour(colour), colour) >= 4.2


def test_own_colours_have_a_variant_that_stands_out_from_dark_paper():
    for colour in ("#000000", "#5E3C99", "#1F77B4", "#E66101", "#ffffff"):
        assert contrast(palette.dark_variant(colour), DARK_PAPER) >= MIN_CONTRAST

"""Colours with different meanings are distinct for every kind of colour vision."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from exactline.plot.attribution import HEAT_COLOURS
from exactline.plot.palette import CLASS_COLOURS
from exactline.plot.style import COLOURS

# Simulated colour vision without long, middle or short-wave cones: Machado, Oliveira and Fernandes (2009), full
# severity, matrices for linear RGB.
VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
WHITE = np.array([0.95047, 1.0, 1.08883])
MIN_DISTANCE = 10.0  # in CIELAB; 2.3 can just be noticed side by side


def lab(colour, vision):
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x = np.array(TO_XYZ) @ np.clip(np.array(VISION[vision]) @ linear, 0, 1) / WHITE
    f = np.where(x > (6 / 29) ** 3, np.cbrt(x), x / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_curves_are_distinct(vision):
    for one, two in combinations(COLOURS, 2):
        assert np.linalg.norm(lab(one, vision) - lab(two, vision)) > MIN_DISTANCE, (one, two)


@pytest.mark.parametrize("vision", VISION)
def test_classes_of_planes_are_distinct(vision):
    for one, two in combinations(CLASS_COLOURS[:7], 2):
        assert np.linalg.norm(lab(one, vision) - lab(two, vision)) > MIN_DISTANCE / 2, (one, two)


@pytest.mark.parametrize("vision", VISION)
def test_positive_and_negative_are_distinct_and_zero_is_the_lightest(vision):
    middle = len(HEAT_COLOURS) // 2
    lightness = [lab(colour, vision)[0] for colour in HEAT_COLOURS]
    assert lightness == sorted(lightness[:middle]) + sorted(lightness[middle:], reverse=True)
    for negative, positive in zip(HEAT_COLOURS[:middle], HEAT_COLOURS[: -middle - 1 : -1], strict=True):
        assert np.linalg.norm(lab(negative, vision) - lab(positive, vision)) > 2 * MIN_DISTANCE

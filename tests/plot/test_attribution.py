"""Pictures of attributions: colours are symmetric around 0, and bars are the largest."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from exactline import attr, zoo
from exactline.errors import ArgumentError
from exactline.plot.attribution import NEGATIVE_COLOUR, POSITIVE_COLOUR, REST_COLOUR, plot_attribution
from exactline.plot.figure import save_picture


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize("shape", [(1, 4, 6), (3, 4, 6), (4, 6), (4, 6, 3), (4, 6, 1), (1, 1, 4, 6), (7, 4, 6)])
@pytest.mark.every(9)
def test_an_image_becomes_a_heat_map_beside_its_input(shape, tmp_path):
    values = np.random.default_rng(0).normal(size=shape)
    ax = plot_attribution(values, np.abs(values))
    summed = values if values.ndim == 2 else values.sum(2 if shape[:2] == (4, 6) else -3).reshape(4, 6)
    (heat,) = ax.images
    np.testing.assert_allclose(heat.get_array(), summed)
    assert heat.get_clim() == pytest.approx((-np.abs(summed).max(), np.abs(summed).max()))
    assert to_hex(heat.cmap(0.5), keep_alpha=False)[1:3] in ("fe", "ff")  # 0 is white
    left, right, bar = ax.figure.axes
    assert right is ax
    assert left.images[0].get_array().shape[:2] == (4, 6)
    assert 0 <= left.images[0].get_array().min() <= left.images[0].get_array().max() <= 1
    assert bar.get_ylim() == heat.get_clim()
    assert save_picture(ax, tmp_path / "heat.png").stat().st_size > 1000


def test_bars_are_the_largest_with_their_signs_and_the_rest_together():
    values = torch.tensor([0.5, -3.0, 0.1, 2.0, -0.2])
    ax = plot_attribution(values, torch.arange(5.0), max_bars=3, title="why")
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([-3, 2, 0.5, -0.1])
    assert [to_hex(bar.get_facecolor()).upper() for bar in ax.patches] == [
        NEGATIVE_COLOUR,
        POSITIVE_COLOUR,
        POSITIVE_COLOUR,
        REST_COLOUR,
    ]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["x[1] = 1", "x[3] = 3", "x[0] = 0", "2 others"]
    assert ax.yaxis_inverted()
    assert ax.get_title() == "why"


def test_given_axes_get_only_the_map_and_a_limit_clips_its_colours():
    figure, (mine, other) = plt.subplots(1, 2)
    ax = plot_attribution(np.eye(3) * 5, np.eye(3), ax=mine, limit=2.0)
    assert ax is mine
    assert ax.images[0].get_clim() == (-2, 2)
    assert not other.images
    assert len(figure.axes) == 3  # and the colour bar


def test_zeros_and_single_numbers_can_be_drawn():
    assert plot_attribution(np.zeros((2, 2))).images[0].get_clim() == (-1, 1)
    assert len(plot_attribution(np.array(2.5)).patches) == 1


def test_attr_plot_draws_what_integrated_gradients_return(tmp_path):
    images, labels = zoo.digits_images()
    found = attr.IntegratedGradients(zoo.digits_network()).attribute(images[:1], target=int(labels[0]))
    before = dict(plt.rcParams)
    ax = attr.plot(found[0], images[0], title="a digit")
    np.testing.assert_allclose(ax.images[0].get_array(), found[0, 0])
    text = save_picture(ax, tmp_path / "heat.svg").read_text()
    assert ">a digit</text>" in text
    assert dict(plt.rcParams) == before
    _, mine = plt.subplots()
    assert attr.plot(found, ax=mine, limit=0.5) is mine  # a batch of one is an image too
    assert mine.images[0].get_clim() == (-0.5, 0.5)


@pytest.mark.parametrize(
    ("values", "point"), [(np.zeros(3), np.zeros(4)), (np.array([np.nan]), None), (np.array(["a"]), None)]
)
def test_shapes_that_differ_and_values_that_are_not_finite_are_refused(values, point):
    with pytest.raises(ArgumentError):
        plot_attribution(values, point)

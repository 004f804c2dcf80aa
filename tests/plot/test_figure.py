"""Pictures go into the axes of the caller; anything but axes is refused, and nothing is drawn."""

from functools import cache

import matplotlib.pyplot as plt
import pytest
import torch

import exactline as xl
from exactline import zoo
from exactline.plot.figure import save_picture


@cache
def line():
    return xl.restrict(zoo.loan_network(), *zoo.loan_line())


def plane():
    return xl.restrict_plane(zoo.loan_network(), [[20.0, 30.0], [30.0, 30.0], [30.0, 50.0]])


DRAWN = {
    "line": lambda ax: line().plot(ax),
    "decisions": lambda ax: line().decisions().plot(ax),
    "plane": lambda ax: plane().plot(ax),
    "attributions": lambda ax: xl.attr.plot(torch.eye(4), ax=ax),
    "bars": lambda ax: xl.attr.plot(torch.ones(3), ax=ax),
    "save": lambda ax: save_picture(ax, "a.png"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_an_array_of_axes_is_refused_and_the_error_says_what_to_give(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    figure, several = plt.subplots(1, 2)
    with pytest.raises(xl.ArgumentError) as caught:
        DRAWN[name](several)
    assert (caught.value.problem, caught.value.where) == ("A ndarray is not an axes of matplotlib.", "argument ax")
    assert not any(one.has_data() for one in several)
    assert not list(tmp_path.iterdir())
    plt.close(figure)


@pytest.mark.parametrize("name", [name for name in DRAWN if name != "save"])
def test_axes_that_are_given_come_back(name):
    figure, (left, right) = plt.subplots(1, 2)
    assert DRAWN[name](ax=right) is right
    assert (left.has_data(), right.has_data()) == (False, True)
    plt.close(figure)

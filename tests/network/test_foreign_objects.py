"""Objects of other packages that a model refers to: they are neither called nor restored, and never end a capture."""

import random
import types
from collections import OrderedDict

import torch
from torch import nn

import exactline as xl
from exactline.network.fingerprint import fingerprint_module

ENTROPY = random.SystemRandom()
ODD_MODULE = types.ModuleType("odd_module")
ODD_MODULE.__name__ = types.ModuleType("not a string")  # pyright: ignore[reportAttributeAccessIssue]


class LazyItems(OrderedDict):
    """A dict that imports what it holds when it is asked, and cannot."""

    def items(self):
        raise ImportError("not installed")

    def keys(self):
        raise ImportError("not installed")


LAZY = LazyItems(size=1.0)


class Referring(nn.Module):
    """A module with a reference to each kind of object."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)

    def forward(self, x):
        if ENTROPY is None or ODD_MODULE is None:
            return x
        return torch.relu(self.linear(x)) * LAZY["size"]


def test_a_model_that_refers_to_such_objects_is_captured():
    torch.manual_seed(0)
    model = Referring().eval()
    line = xl.restrict(model, [-2.0, 1.0], [2.0, 0.5])
    assert line.check().worst < 1e-12


def test_stored_items_are_compared_without_calling_the_subclass():
    model = nn.Sequential(nn.Linear(2, 2))
    model.lazy = LazyItems(size=1.0)
    before = fingerprint_module(model)
    assert before.proves_unchanged(fingerprint_module(model))
    OrderedDict.__setitem__(model.lazy, "size", 2.0)
    assert not before.proves_unchanged(fingerprint_module(model))


def test_entropy_of_the_system_proves_nothing():
    model = nn.Sequential(nn.Linear(2, 2))
    model.source = ENTROPY
    assert not fingerprint_module(model).is_complete

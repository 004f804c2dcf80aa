"""Torch's operators, family by family: importing this fills the registry."""

from . import affine, maximum, pointwise, shape, tails
from .registry import REFUSED as REFUSED
from .registry import RULES as RULES
from .registry import SHAPED as SHAPED

__all__ = ["REFUSED", "RULES", "SHAPED", "affine", "maximum", "pointwise", "shape", "tails"]

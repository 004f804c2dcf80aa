"""Conversion rules for torch's ATen operators, by family; importing the package registers all of them."""

from . import affine, maximum, pointwise, shape, smooth
from .registry import RULES as RULES
from .registry import SHAPE_OPERATORS as SHAPE_OPERATORS
from .registry import UNSUPPORTED_REASONS as UNSUPPORTED_REASONS

__all__ = ["RULES", "SHAPE_OPERATORS", "UNSUPPORTED_REASONS", "affine", "maximum", "pointwise", "shape", "smooth"]

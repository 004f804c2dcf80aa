"""All samples by operator, and the operators that no model can bring to their rule."""

from __future__ import annotations

from . import affine, breaking, shapes
from .sample import SAMPLES, Sample

__all__ = ["SAMPLES", "UNREACHABLE", "Sample", "affine", "breaking", "shapes"]

UNREACHABLE: dict[str, str] = {}

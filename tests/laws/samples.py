"""All samples by operator, and the operators that no model can bring to their rule."""

from __future__ import annotations

from .affine import AFFINE
from .breaking import BREAKING
from .sample import Sample
from .shapes import SHAPES

SAMPLES: dict[str, list[Sample]] = {}
for family in (AFFINE, BREAKING, SHAPES):
    for key, found in family.by_key.items():
        SAMPLES.setdefault(key, []).extend(found)

UNREACHABLE: dict[str, str] = {}

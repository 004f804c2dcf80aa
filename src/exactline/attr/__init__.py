"""Exact attributions: what captum estimates from samples, computed from every piece of the line."""

from .exact import PathIntegral as PathIntegral
from .exact import path_integral as path_integral

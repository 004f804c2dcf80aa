"""Callbacks for training loops: how the linear regions of a network change while it learns."""

from .region_density import RegionDensity as RegionDensity
from .region_density import RegionRecord as RegionRecord

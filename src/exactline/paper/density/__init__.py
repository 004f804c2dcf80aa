"""The density study: breaks per unit of length in any networks, against line length, layer and training epoch."""

from .plan import LinePlan as LinePlan
from .study import DensityStudy as DensityStudy
from .study import load_networks as load_networks
from .study import run as run

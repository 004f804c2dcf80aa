"""Exact attributions: what captum estimates from samples, computed from every piece of the line."""

from .adaptive import adaptive_integrated_gradients as adaptive_integrated_gradients
from .exact import PathIntegral as PathIntegral
from .exact import path_integral as path_integral
from .recommend import Report as Report
from .recommend import recommend as recommend
from .rules import error_curve as error_curve
from .rules import integrate as integrate

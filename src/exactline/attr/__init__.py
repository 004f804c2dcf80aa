"""Exact attributions: what captum estimates from samples, computed from every piece of the line."""

from .adaptive import adaptive_integrated_gradients as adaptive_integrated_gradients
from .asked import ExactWarning as ExactWarning
from .conductance import InternalInfluence as InternalInfluence
from .conductance import LayerConductance as LayerConductance
from .conductance import NeuronConductance as NeuronConductance
from .exact import PathIntegral as PathIntegral
from .exact import path_integral as path_integral
from .integrated import AttributionReport as AttributionReport
from .integrated import IntegratedGradients as IntegratedGradients
from .layer_gradients import LayerIntegratedGradients as LayerIntegratedGradients
from .picture import plot as plot
from .recommend import Report as Report
from .recommend import recommend as recommend
from .rules import error_curve as error_curve
from .rules import integrate as integrate

"""Exact attributions: what captum estimates from samples, computed from every piece of the line."""

from .conductance import InternalInfluence as InternalInfluence
from .conductance import LayerConductance as LayerConductance
from .conductance import NeuronConductance as NeuronConductance
from .inputs import ExactWarning as ExactWarning
from .integrated_gradients import AttributionReport as AttributionReport
from .integrated_gradients import IntegratedGradients as IntegratedGradients
from .layer_gradients import LayerIntegratedGradients as LayerIntegratedGradients
from .methods import plot as plot
from .path_integrals import PathIntegral as PathIntegral
from .path_integrals import path_integral as path_integral
from .sampling_rules import error_curve as error_curve
from .sampling_rules import integrate as integrate
from .step_counts import SamplingReport as SamplingReport
from .step_counts import recommend as recommend

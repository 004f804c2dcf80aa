"""Exact attributions: what captum estimates from samples, computed from every piece of the line."""

from .captum_classes import watch_for_captum as _watch_for_captum
from .conductance import InternalInfluence as InternalInfluence
from .conductance import LayerConductance as LayerConductance
from .expected_gradients import ExpectedGradients as ExpectedGradients
from .integrated_gradients import IntegratedGradients as IntegratedGradients
from .layer_gradients import LayerIntegratedGradients as LayerIntegratedGradients
from .methods import plot as plot
from .neurons import NeuronConductance as NeuronConductance
from .neurons import NeuronIntegratedGradients as NeuronIntegratedGradients
from .path_integrals import PathIntegral as PathIntegral
from .path_integrals import path_integral as path_integral
from .report import AttributionReport as AttributionReport
from .sampling_options import ExactWarning as ExactWarning
from .sampling_rules import error_curve as error_curve
from .sampling_rules import integrate as integrate
from .step_counts import SamplingReport as SamplingReport
from .step_counts import recommend as recommend

_watch_for_captum()

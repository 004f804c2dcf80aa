"""Smooth networks on a line with proven error bounds: integrated gradients, curves and decisions."""

from .attributions import CertifiedAttributions as CertifiedAttributions
from .attributions import certified_integrated_gradients as certified_integrated_gradients
from .curve import CertifiedCurve as CertifiedCurve
from .curve import certify_curve as certify_curve
from .decisions import LabelledInterval as LabelledInterval
from .decisions import certify_decisions as certify_decisions
from .network_module import NetworkModule as NetworkModule
from .record import record_gradients as record_gradients
from .record import record_values as record_values
from .tape import Tape as Tape

"""Networks on lines in rational arithmetic: an oracle for tests, and certificates for float restrictions."""

from .certificate import Certificate as Certificate
from .certify import certify as certify
from .oracle import restrict as restrict
from .restriction import ExactOrigin as ExactOrigin
from .restriction import ExactRestriction as ExactRestriction

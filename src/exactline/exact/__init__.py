"""The same mathematics in rationals: an oracle for tests, and a checker that proves pieces."""

from .certificate import Certificate as Certificate
from .certify import certify as certify
from .restrict import restrict as restrict
from .restriction import Born as Born
from .restriction import ExactRestriction as ExactRestriction

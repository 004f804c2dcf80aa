"""What is decided on lines: which output leads where, where it is largest, and whether a property is broken."""

from .extrema import Crossings as Crossings
from .extrema import Extrema as Extrema
from .intervals import Decisions as Decisions
from .intervals import Interval as Interval
from .intervals import ManyDecisions as ManyDecisions

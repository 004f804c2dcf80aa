"""Decisions on lines and planes: which output leads where, extrema and level sets of linear functionals."""

from .extrema import Extrema as Extrema
from .extrema import LevelSet as LevelSet
from .intervals import Decisions as Decisions
from .intervals import Interval as Interval
from .intervals import ManyDecisions as ManyDecisions

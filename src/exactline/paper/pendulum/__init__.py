"""Closed loops: the exact states of a controlled pendulum after some steps, and whether they stay safe."""

from .reach import ReachStudy as ReachStudy
from .reach import run as run
from .step import bundled_step as bundled_step
from .step import published_step as published_step

"""Restrict a network to many lines, in this process or on Ray, with answers that survive a crash."""

from .answers import LineAttribution as LineAttribution
from .answers import LineDensity as LineDensity
from .driver import Progress as Progress
from .launch import run as run
from .split_line import restrict as restrict
from .store import Store as Store
from .store import open as open

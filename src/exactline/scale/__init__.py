"""Past one machine: one question asked of many lines, here or on Ray, with answers that outlive a crash."""

from .driver import Progress as Progress
from .results import LineAttribution as LineAttribution
from .results import LineDensity as LineDensity
from .run import run as run
from .split_line import restrict as restrict
from .store import Store as Store
from .store import open as open

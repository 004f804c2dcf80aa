"""The demo: five answers on bundled networks as one report, which ``exactline demo`` writes."""

from .build import Demo as Demo
from .build import run as run

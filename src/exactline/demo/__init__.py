"""Five answers on networks that ship with us, as one report: what ``exactline demo`` makes."""

from .run import Demo as Demo
from .run import run as run

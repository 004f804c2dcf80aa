"""The paper's experiments as functions that return tables, and files that hold them."""

from . import acas as acas
from . import acas_plane as acas_plane

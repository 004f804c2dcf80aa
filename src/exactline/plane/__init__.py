"""Two dimensions: a convex polygon of input space cut into all polygons on which a network is affine."""

from .ask import grid as grid
from .ask import restrict_plane as restrict_plane
from .given import plane_through as plane_through
from .polygon import Polygon as Polygon
from .restriction import PlaneRestriction as PlaneRestriction

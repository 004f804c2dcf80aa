"""Restrictions to polygons, compared with the rational oracle, the network itself and restrictions to lines."""

"""Restrictions to polygons, held against the rational oracle, the network itself and restrictions to lines."""

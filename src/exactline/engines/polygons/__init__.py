"""The polygon engine: a mesh of convex polygons on which the network is affine."""

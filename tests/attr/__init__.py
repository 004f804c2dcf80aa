"""Attributions against naive sums, quadrature and other programs."""

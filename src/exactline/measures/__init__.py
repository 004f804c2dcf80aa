"""Measures of networks along lines: break densities."""

"""Tests of decisions, extrema and level sets."""

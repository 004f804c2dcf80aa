"""Tests of curves and attributions to a tolerance."""

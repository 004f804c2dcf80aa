"""Tests of the density study."""

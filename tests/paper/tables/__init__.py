"""Tests of the paper's tables."""

"""Tests of training and of its robustness measures."""

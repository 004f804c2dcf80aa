"""Tests of proven error bounds."""

"""Tests of what is decided on lines."""

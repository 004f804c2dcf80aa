"""Tests of the commands study and train."""

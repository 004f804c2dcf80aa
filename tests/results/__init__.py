"""Tests of exactline.results."""

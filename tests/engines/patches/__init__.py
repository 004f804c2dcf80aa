"""Tests of exactline.engines.patches."""

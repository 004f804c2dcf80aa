"""Tests of exactline.measures."""

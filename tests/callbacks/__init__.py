"""Tests of exactline.callbacks."""

"""Tests of exactline.engines.dense."""

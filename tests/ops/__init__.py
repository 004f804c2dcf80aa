"""Tests of exactline.ops."""

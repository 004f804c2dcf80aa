"""Tests of exactline.verification."""

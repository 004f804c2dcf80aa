"""Tests of exactline.paper.pendulum."""

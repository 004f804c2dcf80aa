"""Fixtures of the tests of the paper's commands."""

from tests.cli.running import run as run

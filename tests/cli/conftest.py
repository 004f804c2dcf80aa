"""Fixtures of the tests of commands."""

from tests.cli.running import run as run

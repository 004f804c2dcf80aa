"""What tests of commands share."""

from tests.cli.running import run as run

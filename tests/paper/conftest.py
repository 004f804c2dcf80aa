"""What tests of the paper's commands share."""

from tests.cli.running import run as run

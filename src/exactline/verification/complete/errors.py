"""What ends a complete verification early."""

from __future__ import annotations


class OutOfTime(Exception):
    """The time is over before every piece is decided."""


class NetworkTooLarge(Exception):
    """The exact weights of a network need too much memory."""

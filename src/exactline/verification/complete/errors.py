"""What ends a complete verification early."""

from __future__ import annotations


class OutOfTime(Exception):
    """The time is over before every piece is decided."""

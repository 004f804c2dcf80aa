"""Rounding errors: what the library says of them, against rational arithmetic."""

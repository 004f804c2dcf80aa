"""Readers of files under random bytes; run by `make fuzz`, not by pytest."""

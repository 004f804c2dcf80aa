"""The demo: its numbers are the library's, and its report is self-contained."""

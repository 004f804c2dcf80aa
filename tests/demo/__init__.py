"""The demonstration: its numbers are the library's, and its report stands alone."""

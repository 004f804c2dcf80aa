"""Files of every format: read, written, damaged."""

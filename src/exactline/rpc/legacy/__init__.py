"""The protocol of the paper's own tool, for clients that were written for it."""

"""The engines, compared with each other."""

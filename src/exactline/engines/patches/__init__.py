"""The patch engine: each break is a slope jump inside its receptive field."""

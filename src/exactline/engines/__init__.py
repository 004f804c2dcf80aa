"""Engines that sweep a network: dense (values at every break), patches (local slope jumps), polygons (planes)."""

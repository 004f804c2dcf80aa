"""The local sweep: breaks as small changes of slope, anchored at the ends of each stretch of a line."""

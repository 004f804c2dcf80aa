"""The engines: they know no operator by name."""

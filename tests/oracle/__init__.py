"""The float sweep held against the rational oracle."""

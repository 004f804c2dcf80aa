"""The networks that ship with the package."""

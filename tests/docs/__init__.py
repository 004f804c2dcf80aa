"""The documentation: its blocks run, its commands exist, its reference is whole, its site is built and opened."""

"""Tests are truths: oracles, analytic networks, laws."""

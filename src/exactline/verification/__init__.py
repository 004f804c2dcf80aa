"""Verification of properties: VNNLIB files, the falsifier, and the replay of counterexamples."""

"""Properties of networks: VNNLIB files, the falsifier and the replay of counterexamples."""

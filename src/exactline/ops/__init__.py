"""What operators do: one file for each family."""

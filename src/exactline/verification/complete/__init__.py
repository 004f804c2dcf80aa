"""Complete verification of boxes with at most two free inputs, in exact integer arithmetic."""

"""What one looks at: pictures and tables of results. Nothing here computes."""

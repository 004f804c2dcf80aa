"""What a hostile reviewer tries: each case a named test, held against truth."""

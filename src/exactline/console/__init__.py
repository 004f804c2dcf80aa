"""What all commands share: arguments and options, tables, JSON and progress on the terminal."""

"""What all commands share: arguments and options, their parsing, output, progress bars and exit statuses."""

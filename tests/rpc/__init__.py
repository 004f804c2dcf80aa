"""The service: its messages, its limits and what it does when clients, workers and machines misbehave."""

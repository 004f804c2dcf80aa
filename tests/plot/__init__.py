"""Pictures, web pages and tables."""

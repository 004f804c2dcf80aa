"""The server: an asynchronous front and a pool of worker processes."""

"""The server: a gRPC front end in threads, and a pool of worker processes that do the work."""

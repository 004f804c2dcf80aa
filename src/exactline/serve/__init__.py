"""The gRPC service: a server whose work runs in processes of its own, and what its client shares with it."""

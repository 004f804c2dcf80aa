"""The gRPC service: messages, codec, server, client, and the protocol of SyReNN clients."""

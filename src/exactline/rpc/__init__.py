"""The gRPC service: messages, server, clients, and the legacy protocol of SyReNN."""

SERVICE_NAME = "exactline.v1.Exactline"
LEGACY_SERVICE_NAME = "syrenn_server.SyReNNTransformer"

"""The messages of the package exactline of the .proto files."""

"""The .proto files of the service, and the Python code that ``make protos`` generates from them."""

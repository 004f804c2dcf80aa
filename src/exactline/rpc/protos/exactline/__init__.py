"""Messages of the service, and the code made from them by `make protos`."""

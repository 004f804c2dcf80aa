"""The messages of exactline.v1: requests, answers and the service."""

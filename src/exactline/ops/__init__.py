"""Operators: one file for each family. They know nothing of the engines that use them."""

"""Tests of the rational oracle and of the certificate checker."""

"""Hostile cases, each a named test: ties, cancellation, huge and tiny values, unusual modules, invalid arguments.

Two kinds are elsewhere: damaged network files, which tests.corpus writes, and clients that exceed the limits of a
server, which need the servers of tests.rpc (test_limits, test_deadline, test_recovery, test_tls).
"""

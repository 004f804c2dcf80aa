"""The tutorials are scripts that tests run, not modules to collect."""

collect_ignore_glob = ["*.py"]

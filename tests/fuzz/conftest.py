"""Fuzz targets need a package of their own and never end: pytest leaves them alone."""

collect_ignore_glob = ["*.py"]

"""The experiments of Sotoudeh and Thakur (2019): studies, tables, pictures and their commands."""

from importlib import import_module
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name not in ("acas", "acas_plane", "ig", "linearity"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)

"""exactline: exact linear restrictions of neural networks."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import attr as attr
    from . import exact as exact
    from . import scale as scale
    from . import studies as studies
    from .custom import register_pointwise as register_pointwise
    from .decide.falsify import falsify as falsify
    from .density import Density as Density
    from .density import density as density
    from .errors import AccessError as AccessError
    from .errors import ArgumentError as ArgumentError
    from .errors import CaptureError as CaptureError
    from .errors import ExactlineError as ExactlineError
    from .errors import FileError as FileError
    from .errors import LimitError as LimitError
    from .errors import LineError as LineError
    from .errors import MissingError as MissingError
    from .errors import NumberError as NumberError
    from .errors import PlaneError as PlaneError
    from .errors import ServiceError as ServiceError
    from .errors import TrainingModeError as TrainingModeError
    from .errors import UnsupportedError as UnsupportedError
    from .formats import load as load
    from .network import Network as Network
    from .plane import PlaneRestriction as PlaneRestriction
    from .plane import grid as grid
    from .plane import plane_through as plane_through
    from .plane import restrict_plane as restrict_plane
    from .restrict import restrict as restrict
    from .restrict import restrict_many as restrict_many
    from .restrict import restrict_path as restrict_path
    from .restrict import sweep as sweep
    from .restriction import Restriction as Restriction
    from .restrictions import Restrictions as Restrictions

__version__ = "0.1.0"

_HOMES = {  # what is imported when it is first asked for, and from where: torch takes seconds
    "custom": ("register_pointwise",),
    "decide.falsify": ("falsify",),
    "density": ("Density", "density"),
    "errors": (
        "AccessError",
        "ArgumentError",
        "CaptureError",
        "ExactlineError",
        "FileError",
        "LimitError",
        "LineError",
        "MissingError",
        "NumberError",
        "PlaneError",
        "ServiceError",
        "TrainingModeError",
        "UnsupportedError",
    ),
    "formats": ("load",),
    "network": ("Network",),
    "plane": ("PlaneRestriction", "grid", "plane_through", "restrict_plane"),
    "restrict": ("restrict", "restrict_many", "restrict_path", "sweep"),
    "restriction": ("Restriction",),
    "restrictions": ("Restrictions",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_PARTS = ("attr", "client", "errors", "exact", "formats", "network", "ops", "scale", "studies", "view", "zoo")


class _Package(ModuleType):
    """The package itself: names are fetched when they are first used."""

    def __getattr__(self, name: str) -> Any:
        if name in _HOME:
            found = getattr(import_module(f".{_HOME[name]}", __name__), name)
        elif name in _PARTS:
            found = import_module(f".{name}", __name__)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: object) -> None:
        # Importing the modules restrict and sweep must not hide the functions of the same names.
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOME, "attr", "exact"})


if not TYPE_CHECKING:
    __all__ = [*_HOME, "attr", "exact"]
    sys.modules[__name__].__class__ = _Package

"""exactline: exact linear restrictions of neural networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import attr as attr
    from . import callbacks as callbacks
    from . import exact as exact
    from . import paper as paper
    from . import plot as plot
    from . import scale as scale
    from . import zoo as zoo
    from .api import grid as grid
    from .api import restrict as restrict
    from .api import restrict_many as restrict_many
    from .api import restrict_path as restrict_path
    from .api import restrict_plane as restrict_plane
    from .api import sweep as sweep
    from .engines.polygons.polygon_input import plane_through as plane_through
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
    from .formats.points import read_point as read_point
    from .measures.break_density import Density as Density
    from .measures.break_density import density as density
    from .measures.comparison import NetworkComparison as NetworkComparison
    from .measures.comparison import compare as compare
    from .network import Network as Network
    from .network.custom import register_pointwise as register_pointwise
    from .pictures import plot_regions as plot_regions
    from .results.plane import PlaneRestriction as PlaneRestriction
    from .results.restriction import Restriction as Restriction
    from .results.restrictions import Restrictions as Restrictions
    from .smooth.api import ToleranceWarning as ToleranceWarning
    from .smooth.api import approximate as approximate
    from .smooth.approximation import Approximation as Approximation
    from .verification.checker import check_proof as check_proof
    from .verification.falsifier import falsify as falsify
    from .verification.verify import verify as verify

_PACKAGES = ("attr", "callbacks", "exact", "paper", "plot", "scale", "zoo")
_NAMES = {  # module: its public names, imported on first use because torch takes seconds to import
    "api": ("grid", "restrict", "restrict_many", "restrict_path", "restrict_plane", "sweep"),
    "engines.polygons.polygon_input": ("plane_through",),
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
    "formats.points": ("read_point",),
    "measures.break_density": ("Density", "density"),
    "measures.comparison": ("NetworkComparison", "compare"),
    "network": ("Network",),
    "network.custom": ("register_pointwise",),
    "pictures": ("plot_regions",),
    "results.plane": ("PlaneRestriction",),
    "results.restriction": ("Restriction",),
    "results.restrictions": ("Restrictions",),
    "smooth.api": ("ToleranceWarning", "approximate"),
    "smooth.approximation": ("Approximation",),
    "verification.checker": ("check_proof",),
    "verification.falsifier": ("falsify",),
    "verification.verify": ("verify",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_MODULE_OF, *_PACKAGES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f".{name}", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

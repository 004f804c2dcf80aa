"""exactline: exact linear restrictions of neural networks."""

from . import exact as exact
from .custom import register_pointwise as register_pointwise
from .errors import ArgumentError as ArgumentError
from .errors import CaptureError as CaptureError
from .errors import ExactlineError as ExactlineError
from .errors import FileError as FileError
from .errors import LineError as LineError
from .errors import MissingError as MissingError
from .errors import NumberError as NumberError
from .errors import TrainingModeError as TrainingModeError
from .errors import UnsupportedError as UnsupportedError
from .formats import load as load
from .network import Network as Network
from .restrict import restrict as restrict
from .restrict import restrict_many as restrict_many
from .restrict import restrict_path as restrict_path
from .restrict import sweep as sweep
from .restriction import Restriction as Restriction
from .restrictions import Restrictions as Restrictions

__version__ = "0.1.0"

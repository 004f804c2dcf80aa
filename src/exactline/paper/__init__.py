"""The experiments of Sotoudeh and Thakur, "Computing Linear Restrictions of Neural Networks" (NeurIPS 2019).

* `acas`: the advice of a collision-avoidance network along lines and on whole maps (figure 2).
* `tables`: samples that integrated gradients need, and breaks along adversarial lines (tables 1 to 4, figures 3 to 5).
* `density`: break densities of any networks, against line length, layer and training epoch.
* `pendulum`: the exact states of a closed loop after some steps; not an experiment of the paper.
* `training`: the digits network trained normally, against attacks and on interval bounds.
* `commands`: the commands ``exactline study`` and ``exactline train``.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import acas as acas
    from . import density as density
    from . import pendulum as pendulum
    from . import tables as tables
    from . import training as training

_STUDIES = ("acas", "density", "pendulum", "tables", "training")


def __getattr__(name: str) -> ModuleType:
    if name not in _STUDIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)  # on first use, because torch takes seconds to import


def __dir__() -> list[str]:
    return list(_STUDIES)

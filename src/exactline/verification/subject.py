"""What a question is about: a network and a property that fits it, from files or objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import ArgumentError
from ..formats import load_network
from ..fp_context import full_precision
from ..network import Network, as_network
from ..network.sklearn_models import as_module, is_estimator
from .flatten import check_property
from .property import Property
from .units import UnitChoice, choose_units
from .vnnlib import read_vnnlib


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and a property of it."""

    model: Any  # as the caller gave it: a path, a Network, a module or an exported program
    network: Network
    prop: Property
    units: UnitChoice


def read_subject(
    network: Any, property: Any, *, shape: Sequence[int] | None = None, normalize: bool | None = None
) -> Subject:
    """Read a network and a property, and check that they fit.

    Args:
        network: A path, a Network, a module or an exported program.
        property: The path of a VNNLIB file, or a Property.
        shape: The shape of one input point, for modules and files that do not define it.
        normalize: For a .nnet file, whether the property is in physical units; None lets the ranges in the file decide.

    Raises FileError, ArgumentError, UnsupportedError, and the errors of `load`.
    """
    prop = property if isinstance(property, Property) else read_vnnlib(_as_path(property, "property"))
    if is_estimator(network):
        network = as_module(network)
    model = (
        network if isinstance(network, (Network, nn.Module)) or _is_exported(network) else _as_path(network, "network")
    )
    units = choose_units(model, prop, normalize) if isinstance(model, Path) else UnitChoice(True)
    captured = _capture(model, prop, shape, units.normalize)
    check_property(captured, prop)
    return Subject(model, captured, prop, units)


def check_seconds(value: Any, default: float) -> float:
    """Return a limit of time, or a default for None; raises ArgumentError."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ArgumentError(
            f"seconds must be a number of at least 0, not {value!r}.", where="argument seconds", hint="Try 60."
        )
    return float(value)


def check_seed(seed: Any) -> None:
    """Raise ArgumentError unless a seed is a whole number that a random generator takes."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ArgumentError(f"seed must be a whole number from 0, not {seed!r}.", where="argument seed", hint="Try 0.")


def _is_exported(value: Any) -> bool:
    from torch.export import ExportedProgram

    return isinstance(value, ExportedProgram)


def _capture(model: Any, prop: Property, shape: Sequence[int] | None, normalize: bool) -> Network:
    if isinstance(model, Network):
        return model
    if isinstance(model, Path):
        return load_network(model, shape=shape, normalize=normalize)
    point = torch.zeros(tuple(shape) if shape is not None else (prop.inputs,))
    with full_precision(kernels=False):
        return as_network(model, [point])


def _as_path(value: Any, name: str) -> Path:
    if isinstance(value, (str, os.PathLike)):
        return Path(value)
    raise ArgumentError(
        f"The {name} cannot be {type(value).__name__}.",
        where=f"argument {name}",
        hint="Give a path, a Network or a module." if name == "network" else "Give a path or a Property.",
    )

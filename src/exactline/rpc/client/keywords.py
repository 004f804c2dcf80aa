"""The keyword arguments of the clients: those of the library, without ``device``, which the server chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import torch

from ...progress import ProgressCallback


class ConnectionKeywords(TypedDict, total=False):
    """Keyword arguments of `Client` and `AsyncClient`."""

    token: str | None  # sent with every call; needs TLS unless the server is on the same machine
    tls: Any  # True for the system's authorities, a path to those to trust, or credentials made with grpc
    certificate: tuple[Path, Path] | None  # paths of a certificate and its key, if the server asks for one
    insecure: bool  # allows a token without TLS
    timeout: float | None  # seconds for each call
    retries: int  # how often to try again while the server cannot be reached


class RemotePlaneKeywords(TypedDict, total=False):
    """Keyword arguments of `Client.plane` and `Client.grid`: those of `restrict_plane` without device and output."""

    dtype: torch.dtype
    memory: int | None
    values: bool
    progress: bool | ProgressCallback
    rewrite: bool
    until: str | None
    max_polygons: int | None
    seconds: float | None


class RemoteSweepKeywords(TypedDict, total=False):
    """Keyword arguments of `Client.sweep`: those of `sweep` but device, output and record."""

    dtype: torch.dtype
    memory: int | None
    values: bool
    rewrite: bool
    until: str | None
    seconds: float | None
    engine: str


class RemoteRestrictKeywords(RemoteSweepKeywords, total=False):
    """Keyword arguments of `Client.restrict` and `restrict_many`: those of `restrict` but device, output and record."""

    progress: bool | ProgressCallback
    max_breaks: int | None
    errors: bool  # True asks for the estimated errors at once; otherwise a second call asks when they are needed


class RemoteDecideKeywords(RemoteRestrictKeywords, total=False):
    """Keyword arguments of `Client.decide` and `Client.decide_many`."""

    output: int | None  # which output of the network decides, if it has several


class RemoteApproximateKeywords(TypedDict, total=False):
    """Keyword arguments of `Client.approximate`: those of `approximate` without device."""

    tol: float
    certified: bool
    max_evaluations: int | None
    seconds: float | None
    progress: bool | ProgressCallback
    memory: int | None
    output: str | int | None


class RemoteAttributeKeywords(TypedDict, total=False):
    """Keyword arguments of `Client.attribute`."""

    multiply_by_inputs: bool  # False gives the mean gradients
    return_convergence_delta: bool
    return_report: bool  # appends an AttributionReport
    memory: int | None
    progress: bool | ProgressCallback

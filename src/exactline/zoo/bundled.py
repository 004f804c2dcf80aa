"""Files that ship with the package: weights, images, and the facts that training wrote beside the weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..optional import require_package

Module = TypeVar("Module", bound=nn.Module)


def read_bytes(name: str) -> bytes:
    """The content of a bundled file."""
    return resources.files("exactline.zoo").joinpath(name).read_bytes()


def read_tensors(name: str) -> dict[str, Tensor]:
    """The tensors of a bundled safetensors file.

    Raises MissingError where safetensors is not installed.
    """
    with require_package("Bundled networks need the package safetensors.", where=name, hint="pip install safetensors"):
        from safetensors.torch import load
    return load(read_bytes(name))


def build_network(network_class: Callable[[], Module], weights: Mapping[str, Tensor]) -> Module:
    """A network in eval mode with the given weights; draws no random numbers."""
    with torch.device("meta"):
        network = network_class()
    network.load_state_dict(weights, assign=True)
    return network.eval()


def read_facts(name: str) -> dict[str, Any]:
    """The facts in the header of a bundled safetensors file."""
    data = read_bytes(name)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["about"])["facts"]

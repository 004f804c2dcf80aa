"""Random ONNX files: bytes are changed in half of the steps, the graph they stand for in the other half."""

from __future__ import annotations

import random

import atheris

from .graphs import changed
from .harness import run


def read(data: bytes) -> None:
    from exactline.formats.onnx import read_onnx

    read_onnx(data, "fuzz", folder=None)


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Another file that resembles this one."""
    chance = random.Random(seed)
    made = changed(data, chance) if chance.random() < 0.5 else None
    return atheris.Mutate(data, most) if made is None or len(made) > most else made


if __name__ == "__main__":
    run("onnx", (".onnx",), read, mutate)

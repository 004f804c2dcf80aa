"""What all fuzz targets share: small limits, seeds, and what counts as a finding.

A finding is an exception that is not one of ours, or a case that takes more than five seconds.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["exactline.formats"]):
    from exactline.errors import ExactlineError
    from exactline.formats import eran as eran
    from exactline.formats import limits
    from exactline.formats import nnet as nnet
    from exactline.formats.onnx.values import OPERATORS as OPERATORS

import torch
import torch._dynamo  # torch loads this at first use, for seconds: not a reader's time

from tests.corpus.make import bad_files

FOLDER = Path("build/fuzz")


def run(name: str, endings: tuple[str, ...], read: Callable[[bytes], object], mutate: object = None) -> None:
    """Fuzz one reader, with the corpus files of these endings as seeds."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    limits.MAX_FILE_BYTES = limits.MAX_LINE_BYTES = 1 << 20
    limits.MAX_TENSOR_NUMBERS = limits.MAX_WEIGHTS = limits.MAX_VALUE_ELEMENTS = limits.MAX_FOLDED_NUMBERS = (
        limits.MAX_TABLE_ENTRIES
    ) = 1 << 18
    seeds = FOLDER / name
    seeds.mkdir(parents=True, exist_ok=True)
    for file, data, *_ in bad_files():
        if file.endswith(endings) and len(data) < 4000:
            (seeds / file).write_bytes(data)

    def one(data: bytes) -> None:
        try:
            read(data)
        except ExactlineError as problem:
            str(problem)

    options = [f"-artifact_prefix={FOLDER}/{name}-", "-timeout=5", "-max_len=4000", "-rss_limit_mb=4096"]
    given = {"custom_mutator": mutate} if mutate else {}
    atheris.Setup([sys.argv[0], *options, *sys.argv[1:], str(seeds)], one, **given)
    atheris.Fuzz()

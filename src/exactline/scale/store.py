"""A store that is read: answers by the number of their line, each decoded on demand."""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..arrays import Ints
from ..errors import ExactlineError, FileError, MissingError
from ..formats import load_network
from ..humanize import count_noun
from ..network import Network, as_network
from ..results.storage import check_same_network
from .answers import decode_answer
from .export import export
from .failure import Failure
from .index import Index, ShardRecord, read_index
from .manifest import NO_STORE_HINT, read_manifest
from .shard import RESUME_HINT, SHARD_FOLDER, Shard, decode_shard
from .store_writer import find_damage
from .summary import summarize

MAX_CACHED_SHARDS = 4


@dataclass(eq=False)
class Store:
    """The answers of a run; ``store[i]`` is what the job gives for line i.

    >>> import tempfile, torch, exactline as xl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     xl.scale.run(torch.nn.ReLU(), [([-1.0], [1.0]), ([-1.0], [3.0])], out=folder)
    ...     xl.scale.open(folder)[1].alphas.tolist()
    <Store: 2 of 2 lines, 6 breaks, 1 shard>
    [0.0, 0.25, 1.0]
    """

    path: Path
    manifest: Mapping[str, Any]  # the network, the job and the lines that the store was made from
    index: Index
    damaged: Mapping[str, str]  # shards that cannot be trusted, and what is wrong with each
    network: Network | None = None
    cached_shards: OrderedDict[str, Shard] = field(default_factory=OrderedDict[str, Shard])

    def __post_init__(self) -> None:
        self._names = list(self.index.records)
        rows = [(part.first, part.stop, k) for k, r in enumerate(self.index.records.values()) for part in r.ranges]
        table = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)
        self._firsts, self._stops, self._owners = (np.ascontiguousarray(column) for column in table.T)

    def __len__(self) -> int:
        """Lines of the whole job where its end was reached, else up to the last one that is known."""
        if self.index.total_lines is not None:
            return self.index.total_lines
        known = self.manifest["lines"].get("count")
        return int(known) if known is not None else int(self._stops.max(initial=0))

    @property
    def done(self) -> int:
        """How many lines are finished, with an answer or with an error."""
        return int((self._stops - self._firsts).sum())

    @property
    def complete(self) -> bool:
        """Whether every line is finished and no shard is damaged."""
        return self.index.total_lines is not None and self.done == self.index.total_lines and not self.damaged

    @property
    def breaks(self) -> int:
        """How many breaks all lines have together."""
        return sum(r.breaks for r in self.index.records.values())

    @property
    def numbers(self) -> Ints:
        """The numbers of the finished lines."""
        parts = [np.arange(a, b) for a, b in zip(self._firsts, self._stops, strict=True)]
        return np.concatenate([*parts, np.zeros(0, dtype=np.int64)])

    @property
    def errors(self) -> dict[int, ExactlineError]:
        """The errors of the lines that failed, by the number of the line."""
        return {number: failure.to_error() for number, failure in sorted(self.failures().items())}

    def failures(self) -> dict[int, Failure]:
        """The lines that failed, by number: their errors, and how often each was tried."""
        found: dict[int, Failure] = {}
        for name, record in self.index.records.items():
            if record.errors and name not in self.damaged:
                found |= self._load_shard(name).failures
        return found

    def __getitem__(self, number: int) -> Any:
        """The answer of one line.

        Raises the error the line failed with, MissingError where it is not finished, FileError where its shard is
        damaged.
        """
        size = len(self)
        if not -size <= number < size:
            raise IndexError(f"there are {size:,} lines; {number} is not one of them")
        number = int(number) % size
        return decode_answer(self._load_shard(self._find_shard(number)), number, self.manifest, self.network)

    def __iter__(self) -> Iterator[Any]:
        """All answers in order; a line that failed raises its error. `items` leaves failed lines out."""
        return (self[i] for i in range(len(self)))

    def items(self) -> Iterator[tuple[int, Any]]:
        """The number and the answer of every line that has one, in order."""
        for first, stop, owner in zip(self._firsts, self._stops, self._owners, strict=True):
            name = self._names[owner]
            if name in self.damaged:
                continue
            for number in range(int(first), int(stop)):
                shard = self._load_shard(name)
                if number not in shard.failures:
                    yield number, decode_answer(shard, number, self.manifest, self.network)

    def summary(self) -> Any:
        """A table with a row for each finished line: its breaks, length, error and so on.

        A DataFrame where pandas is installed, else a dict of arrays.
        """
        return summarize(self)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write all answers to a .parquet file or a .zarr folder.

        Args:
            path: The file or folder; its suffix chooses the format.

        Raises MissingError where pyarrow or zarr is not installed, FileError where the file cannot be written.
        """
        export(self, Path(path))

    def shards(self) -> Iterator[tuple[ShardRecord, Shard]]:
        """Every undamaged shard with its record, in order of its first line."""
        first: dict[int, int] = {}
        for number, owner in zip(self._firsts.tolist(), self._owners.tolist(), strict=True):
            first.setdefault(owner, number)
        for owner in sorted(first, key=first.__getitem__):
            name = self._names[owner]
            if name not in self.damaged:
                yield self.index.records[name], self._load_shard(name)

    def _find_shard(self, number: int) -> str:
        row = int(np.searchsorted(self._firsts, number, side="right")) - 1
        if row < 0 or number >= self._stops[row]:
            raise MissingError(
                f"Line {number} is not finished.", where=str(self.path), hint="Run again with resume=True."
            )
        return self._names[self._owners[row]]

    def _load_shard(self, name: str) -> Shard:
        if name in self.cached_shards:
            self.cached_shards.move_to_end(name)
            return self.cached_shards[name]
        where = str(self.path / SHARD_FOLDER / name)
        if name in self.damaged:
            raise FileError(f"The shard is damaged: {self.damaged[name]}.", where=where, hint=RESUME_HINT)
        try:
            data = (self.path / SHARD_FOLDER / name).read_bytes()
        except OSError as problem:
            raise FileError(
                f"The shard cannot be read: {problem.strerror}.", where=where, hint=RESUME_HINT
            ) from problem
        if zlib.crc32(data) != self.index.records[name].file.crc:
            raise FileError("The shard's checksum does not match.", where=where, hint=RESUME_HINT)
        self.cached_shards[name] = decode_shard(data, where)
        while len(self.cached_shards) > MAX_CACHED_SHARDS:
            self.cached_shards.popitem(last=False)
        return self.cached_shards[name]

    def __repr__(self) -> str:
        parts = [
            f"{self.done:,} of {len(self):,} lines",
            f"{self.breaks:,} breaks",
            count_noun(len(self.index.records), "shard"),
        ]
        errors = sum(r.errors for r in self.index.records.values())
        parts += [f"{errors:,} with an error"] if errors else []
        parts += [f"{len(self.damaged):,} damaged"] if self.damaged else []
        return f"<Store: {', '.join(parts)}>"


def open(path: str | os.PathLike[str], model: Any = None, *, check: bool = True) -> Store:
    """Open the store of a run, finished or not.

    Args:
        path: the folder that `run` wrote to.
        model: the network of the run, or the path of its file; needed for methods of answers that evaluate it.
        check: True reads every shard and compares its checksum, and `Store.damaged` names those that do not match;
            False compares only the sizes of files, and checksums when a shard is first read.

    >>> import tempfile, torch, exactline as xl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = xl.scale.run(torch.nn.ReLU(), [([-1.0], [3.0])], out=folder)
    ...     store = xl.scale.open(folder, torch.nn.ReLU())
    ...     store.complete, store[0].piece(1).affine()
    (True, (tensor([[1.]], dtype=torch.float64), tensor([0.], dtype=torch.float64)))

    Raises FileError where there is no store, or the model is not the network of the run.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if manifest is None:
        raise FileError("There is no store.", where=str(folder), hint=NO_STORE_HINT)
    index = read_index(folder)
    network = None if model is None else _load_network(model, manifest, folder)
    return Store(folder, manifest, index, find_damage(folder, index, checksums=check), network)


def _load_network(model: Any, manifest: dict[str, Any], folder: Path) -> Network:
    if isinstance(model, (str, os.PathLike)):
        model = load_network(model)
    points = [torch.zeros(shape, dtype=torch.float64) for shape in manifest["inputs"]]
    network = as_network(model, points)
    check_same_network(network, tuple(manifest["names"]), manifest["network"]["checksum"], folder)
    return network

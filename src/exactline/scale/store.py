"""A store that is read: answers by the number of their line, each fetched when it is asked for."""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Ints
from ..errors import ExactlineError, FileError, MissingError
from ..humanize import count_noun
from ..network.graph import Network
from . import index as indices
from .answers import answer
from .failure import Note
from .folder import damaged
from .index import Index, Record
from .manifest import HINT, read_meta
from .shard import AGAIN, FOLDER, Shard, unpacked

KEPT = 4  # shards that stay in memory


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
    meta: Mapping[str, Any]
    index: Index
    damaged: Mapping[str, str]  # shards that are not what they were, and what is wrong with each
    network: Network | None = None
    shards: OrderedDict[str, Shard] = field(default_factory=OrderedDict[str, Shard])

    def __post_init__(self) -> None:
        self._names = list(self.index.records)
        rows = [(a, b, k) for k, r in enumerate(self.index.records.values()) for a, b, _ in r.runs]
        table = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)
        self._firsts, self._stops, self._owners = (np.ascontiguousarray(table[:, k]) for k in range(3))

    def __len__(self) -> int:
        """Lines of the whole job where its end was reached, else up to the last that is known."""
        if self.index.total is not None:
            return self.index.total
        known = self.meta["lines"].get("count")
        return int(known) if known is not None else int(self._stops.max(initial=0))

    @property
    def done(self) -> int:
        """Lines that are finished, with an answer or with an error."""
        return int((self._stops - self._firsts).sum())

    @property
    def complete(self) -> bool:
        """Whether every line is finished and no shard damaged."""
        return self.index.total is not None and self.done == self.index.total and not self.damaged

    @property
    def breaks(self) -> int:
        """Of all lines."""
        return sum(r.breaks for r in self.index.records.values())

    @property
    def numbers(self) -> Ints:
        """The numbers of the lines that are finished."""
        parts = [np.arange(a, b) for a, b in zip(self._firsts, self._stops, strict=True)]
        return np.concatenate([*parts, np.zeros(0, dtype=np.int64)])

    @property
    def errors(self) -> dict[int, ExactlineError]:
        """What went wrong, by the number of the line."""
        return {number: note.error() for number, note in sorted(self.notes().items())}

    def notes(self) -> dict[int, Note]:
        """The same, with how often each line was tried."""
        found: dict[int, Note] = {}
        for name, record in self.index.records.items():
            if record.errors and name not in self.damaged:
                found |= self._shard(name).notes
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
        return answer(self._shard(self._name(number)), number, self.meta, self.network)

    def __iter__(self) -> Iterator[Any]:
        """All answers in order; a line that failed raises its error (`items` leaves those out)."""
        return (self[i] for i in range(len(self)))

    def items(self) -> Iterator[tuple[int, Any]]:
        """Numbers and answers of all lines that have one, in order."""
        for first, stop, owner in zip(self._firsts, self._stops, self._owners, strict=True):
            name = self._names[owner]
            if name in self.damaged:
                continue
            for number in range(int(first), int(stop)):
                shard = self._shard(name)
                if number not in shard.notes:
                    yield number, answer(shard, number, self.meta, self.network)

    def summary(self) -> Any:
        """A row for each finished line with its breaks, length, error and so on.

        A DataFrame where pandas is installed, else a dict of arrays.
        """
        from .summary import summary

        return summary(self)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a .parquet file or a .zarr folder.

        Raises MissingError where pyarrow or zarr is not installed, FileError where it cannot be written.
        """
        from .export import export

        export(self, Path(path))

    def records(self) -> Iterator[tuple[Record, Shard]]:
        """Every shard that is sound, in order of its first line."""
        first: dict[int, int] = {}
        for at, owner in zip(self._firsts.tolist(), self._owners.tolist(), strict=True):
            first.setdefault(owner, at)
        for owner in sorted(first, key=first.__getitem__):
            name = self._names[owner]
            if name not in self.damaged:
                yield self.index.records[name], self._shard(name)

    def _name(self, number: int) -> str:
        place = int(np.searchsorted(self._firsts, number, side="right")) - 1
        if place < 0 or number >= self._stops[place]:
            raise MissingError(
                f"Line {number} is not finished.", where=str(self.path), hint="Run again with resume=True."
            )
        return self._names[self._owners[place]]

    def _shard(self, name: str) -> Shard:
        if name in self.shards:
            self.shards.move_to_end(name)
            return self.shards[name]
        if name in self.damaged:
            raise FileError(f"The shard is damaged: {self.damaged[name]}.", where=self._where(name), hint=AGAIN)
        try:
            data = (self.path / FOLDER / name).read_bytes()
        except OSError as problem:
            raise FileError(
                f"The shard cannot be read: {problem.strerror}.", where=self._where(name), hint=AGAIN
            ) from problem
        if zlib.crc32(data) != self.index.records[name].file.crc:
            raise FileError("The shard's checksum does not hold.", where=self._where(name), hint=AGAIN)
        self.shards[name] = unpacked(data, self._where(name))
        while len(self.shards) > KEPT:
            self.shards.popitem(last=False)
        return self.shards[name]

    def _where(self, name: str) -> str:
        return str(self.path / FOLDER / name)

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
    """The answers of a run, finished or not; with the ``model``, everything can be asked of them again.

    Every shard's checksum is compared: `Store.damaged` names those that do not hold. With ``check=False`` only the
    sizes of files are, and checksums when a shard is first read.

    >>> import tempfile, torch, exactline as xl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = xl.scale.run(torch.nn.ReLU(), [([-1.0], [3.0])], out=folder)
    ...     store = xl.scale.open(folder, torch.nn.ReLU())
    ...     store.complete, store[0].piece(1).affine()
    (True, (tensor([[1.]], dtype=torch.float64), tensor([0.], dtype=torch.float64)))

    Raises FileError where there is no store.
    """
    folder = Path(path)
    meta = read_meta(folder)
    if meta is None:
        raise FileError("There is no store.", where=str(folder), hint=HINT)
    index = indices.read(folder)
    network = None if model is None else _known(model, meta, folder)
    return Store(folder, meta, index, damaged(folder, index, thorough=check), network)


def _known(model: Any, meta: dict[str, Any], folder: Path) -> Network:
    import torch

    from ..network import as_network
    from ..results.storage import check_same_network

    if isinstance(model, (str, os.PathLike)):
        from ..formats import load

        model = load(model)
    points = [torch.zeros(shape, dtype=torch.float64) for shape in meta["inputs"]]
    network = as_network(model, points)
    check_same_network(network, tuple(meta["names"]), meta["network"]["checksum"], folder)
    return network

"""The models a server has: files of a folder by name, and uploaded ones by digest, in memory, within a budget."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import ArgumentError, ExactlineError, FileError
from ...formats.open_file import opened
from ..limits import Limits
from ..status import UnknownModel
from .ipc import Model

ENDINGS = {".onnx": ".onnx", ".nnet": ".nnet", ".eran": ".eran", ".tf": ".eran", ".pyt": ".eran"}
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
NAME = 200  # characters of a name that are repeated in an error
DIMS = 16


@dataclass(frozen=True)
class Entry:
    """A model the server has."""

    name: str
    sha256: str
    bytes: int
    uploaded: bool = False


class Store:
    """Finds models by what clients call them, and gives workers their bytes."""

    def __init__(self, folder: Path | None, limits: Limits) -> None:
        self.folder, self.limits = folder, limits
        self._known: dict[Path, tuple[tuple[int, int, int], str, int]] = {}  # stamp, digest and size of files
        self._paths: dict[str, tuple[Path, str]] = {}  # by digest: the file, and its ending
        self._names: dict[str, Path] = {}  # as the folder was when it was last looked at
        self._uploads: OrderedDict[str, tuple[bytes, str]] = OrderedDict()
        self._held = 0
        self._changing = threading.RLock()

    def entries(self) -> list[Entry]:
        """All models, by name; then uploaded ones, the latest used last. Files that cannot be served are left out."""
        named: list[Entry] = []
        for name, path in sorted(self._named().items()):
            with contextlib.suppress(ExactlineError):
                named.append(Entry(name, *self._digest(path)))
        with self._changing:
            held = [Entry("", digest, len(data), True) for digest, (data, _) in self._uploads.items()]
        return named + held

    def model(self, name: str, bare: bool, shape: Sequence[int]) -> Model:
        """What a client means by a name or a digest.

        Raises UnknownModel, ArgumentError.
        """
        if len(shape) > DIMS:
            raise ArgumentError("The shape has too many dims.", where="model.shape", hint=f"Give at most {DIMS}.")
        if found := DIGEST.fullmatch(name):
            digest, ending = found[1], self._ending(found[1])
        else:
            path = self._path(name)
            digest, ending = self._digest(path)[0], _ending(path)
            with self._changing:
                self._paths[digest] = path, ending
        return Model(digest, ending, not bare, tuple(shape) or None)

    def data(self, model: Model) -> bytes:
        """The bytes of a model's file."""
        with self._changing:
            if model.sha256 in self._uploads:
                self._uploads.move_to_end(model.sha256)
                return self._uploads[model.sha256][0]
            path = self._paths.get(model.sha256)
        if path is not None:
            data = _opened(path[0])
            if hashlib.sha256(data).hexdigest() == model.sha256:
                return data
        raise _unknown(f"sha256:{model.sha256}")

    def add(self, data: bytes, ending: str, digest: str) -> None:
        """Keep an uploaded model, and let others go until all fit."""
        with self._changing:
            if digest in self._uploads:
                self._uploads.move_to_end(digest)
                return
            self._uploads[digest] = data, ending
            self._held += len(data)
            while self._held > self.limits.uploads_bytes and len(self._uploads) > 1:
                _, (gone, _) = self._uploads.popitem(last=False)
                self._held -= len(gone)

    @property
    def uploads(self) -> tuple[int, int]:
        """How many uploaded models are kept, and their bytes."""
        with self._changing:
            return len(self._uploads), self._held

    def _ending(self, digest: str) -> str:
        with self._changing:
            if digest in self._uploads:
                self._uploads.move_to_end(digest)
                return self._uploads[digest][1]
            if digest in self._paths:
                return self._paths[digest][1]
        for path in self._named().values():
            with contextlib.suppress(ExactlineError):
                if self._digest(path)[0] == digest:
                    with self._changing:
                        self._paths[digest] = path, _ending(path)
                    return _ending(path)
        raise _unknown(f"sha256:{digest}")

    def _named(self) -> dict[str, Path]:
        """The files of the folder by name: without their ending, unless two would be called the same."""
        if self.folder is None:
            return {}
        files = [f for f in sorted(self.folder.rglob("*")) if _ending(f) and f.is_file()]
        names = [f.relative_to(self.folder).as_posix() for f in files]
        short = [name[: len(name) - len(_suffix(name))] for name in names]
        return {s if short.count(s) == 1 else n: f for s, n, f in zip(short, names, files, strict=True)}

    def _path(self, name: str) -> Path:
        """The file of a name, with or without its ending; the folder is looked at again for names it had not."""
        if name not in self._names or not self._names[name].is_file():
            named = self._named()
            whole = {} if self.folder is None else {f.relative_to(self.folder).as_posix(): f for f in named.values()}
            self._names = whole | named
        if name not in self._names:
            raise _unknown(name)
        return self._names[name]

    def _digest(self, path: Path) -> tuple[str, int]:
        """Digest and size of a file, read again only where it changed."""
        try:
            facts = path.stat()
        except OSError:
            raise _unknown(path.name) from None
        stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        with self._changing:
            known = self._known.get(path)
        if known is None or known[0] != stamp:
            self.limits.within("model_bytes", facts.st_size, "bytes in the model's file")
            data = _opened(path)
            known = stamp, hashlib.sha256(data).hexdigest(), len(data)
            with self._changing:
                self._known[path] = known
        return known[1], known[2]


def _opened(path: Path) -> bytes:
    """All of a file; where it cannot be read, clients need not learn where it lies."""
    try:
        return opened(path)
    except FileError:
        raise FileError("The model's file cannot be read.", where=f"model {path.name}", hint="Look at it.") from None


def _suffix(name: str) -> str:
    plain = name.lower().removesuffix(".gz")
    kind = next((ending for ending in ENDINGS if plain.endswith(ending)), "")
    return name[len(plain) - len(kind) :] if kind else ""


def _ending(path: Path) -> str:
    """The format of a file by its name, or nothing where it is none of ours."""
    return ENDINGS.get(_suffix(path.name).lower().removesuffix(".gz"), "")


def _unknown(name: str) -> UnknownModel:
    return UnknownModel(
        f"The server has no model {name[:NAME]!r}.",
        where="model",
        hint="Ask client.models() for those it has; uploaded ones may have had to make room, so upload it again.",
    )

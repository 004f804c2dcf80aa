"""The models of a server: files of a folder by name, and uploads by digest, which are kept in memory up to a limit."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ArgumentError, ExactlineError, FileError
from ...formats.open_file import read_file
from ..limits import Limits
from ..status import UnknownModelError
from .ipc import ModelKey

FORMAT_SUFFIXES = {".onnx": ".onnx", ".nnet": ".nnet", ".eran": ".eran", ".tf": ".eran", ".pyt": ".eran"}
DIGEST_PATTERN = re.compile(r"sha256:([0-9a-f]{64})")
MAX_NAME_CHARS = 200  # of a model's name in an error
MAX_SHAPE_DIMS = 16
CLOCK_SECONDS = 0.1  # a folder that changed so shortly before it was listed may have changed again unnoticed


@dataclass(frozen=True)
class StoredModel:
    """A model that the server has; an upload has no name."""

    name: str
    sha256: str
    bytes: int
    uploaded: bool = False


@dataclass(frozen=True)
class _Upload:
    """The file of an uploaded model."""

    data: bytes
    suffix: str
    owner: str = ""  # the client with a quota that sent it


@dataclass(frozen=True)
class _FileDigest:
    """The digest and the size of a file as of a state of it."""

    state: tuple[int, int, int]  # modification time, size, inode
    sha256: str
    bytes: int  # after decompression


@dataclass(frozen=True)
class _Listing:
    """The files of the folder by name, as of a state of its folders."""

    files: dict[str, Path]  # without the suffix unless two files would share the name
    by_path: dict[str, Path]  # by names with the suffix
    folders: dict[Path, int] = field(default_factory=dict[Path, int])  # modification times
    is_final: bool = False  # whether a later change would have changed a modification time

    def is_current(self) -> bool:
        """Whether no file was added or removed since."""
        try:
            return self.is_final and all(folder.stat().st_mtime_ns == then for folder, then in self.folders.items())
        except OSError:
            return False


class ModelStore:
    """Finds models by name or digest, and returns the bytes of their files."""

    def __init__(self, folder: Path | None, limits: Limits) -> None:
        self.folder, self.limits = folder, limits
        self._file_digests: dict[Path, _FileDigest] = {}
        self._files_by_digest: dict[str, Path] = {}
        self._listing = _Listing({}, {})
        self._uploads: OrderedDict[str, _Upload] = OrderedDict()  # by digest, the least recently used first
        self._upload_bytes = 0
        self._lock = threading.RLock()

    def find_unchanged(self, name: str, *, normalize: bool, shape: Sequence[int]) -> ModelKey | None:
        """Return what `resolve` would, if that takes no more than a look at the file's state; None otherwise."""
        path = self._listing.files.get(name) or self._listing.by_path.get(name)
        with self._lock:
            file = None if path is None else self._file_digests.get(path)
        if path is None or file is None or len(shape) > MAX_SHAPE_DIMS:
            return None
        try:
            status = path.stat()
        except OSError:
            return None
        if file.state != (status.st_mtime_ns, status.st_size, status.st_ino):
            return None
        with self._lock:
            self._files_by_digest[file.sha256] = path
        return ModelKey(file.sha256, _format_suffix(path), normalize, tuple(shape) or None)

    def list_models(self) -> list[StoredModel]:
        """List all models by name, then the uploads; files that cannot be served are left out."""
        named: list[StoredModel] = []
        for name, path in sorted(self._list_files().files.items()):
            with contextlib.suppress(ExactlineError):
                file = self._digest_file(path)
                named.append(StoredModel(name, file.sha256, file.bytes))
        with self._lock:
            uploads = [StoredModel("", digest, len(u.data), uploaded=True) for digest, u in self._uploads.items()]
        return named + uploads

    def resolve(self, name: str, *, normalize: bool = True, shape: Sequence[int] = ()) -> ModelKey:
        """Find the model that a client means by a name or by "sha256:" and a digest.

        Args:
            name: the name or the digest.
            normalize: False ignores the normalization that a .nnet file asks for.
            shape: of one point, for ONNX files that leave it open.

        Raises UnknownModelError, ArgumentError.
        """
        if len(shape) > MAX_SHAPE_DIMS:
            raise ArgumentError(
                "The shape has too many dimensions.", where="model.shape", hint=f"Give at most {MAX_SHAPE_DIMS}."
            )
        if match := DIGEST_PATTERN.fullmatch(name):
            digest, suffix = match[1], self._find_suffix(match[1])
        else:
            path = self._find_file(name)
            digest, suffix = self._digest_file(path).sha256, _format_suffix(path)
            with self._lock:
                self._files_by_digest[digest] = path
        return ModelKey(digest, suffix, normalize, tuple(shape) or None)

    def read(self, model: ModelKey) -> bytes:
        """Return the bytes of a model's file."""
        with self._lock:
            if model.sha256 in self._uploads:
                self._uploads.move_to_end(model.sha256)
                return self._uploads[model.sha256].data
            path = self._files_by_digest.get(model.sha256)
        if path is not None:
            data = self._read_file(path)
            if hashlib.sha256(data).hexdigest() == model.sha256:
                return data
        raise _unknown_model(f"sha256:{model.sha256}")

    def add_upload(self, data: bytes, suffix: str, digest: str, owner: str = "") -> None:
        """Store an uploaded model, and drop the least recently used uploads until all fit.

        Args:
            data: the file.
            suffix: its format.
            digest: its SHA-256.
            owner: a client whose own uploads are dropped first if they exceed its share.
        """
        with self._lock:
            if digest in self._uploads:
                self._uploads.move_to_end(digest)
                return
            self._uploads[digest] = _Upload(data, suffix, owner)
            self._upload_bytes += len(data)
            if owner:
                self._drop_uploads([d for d, u in self._uploads.items() if u.owner == owner], digest, True)
            self._drop_uploads(list(self._uploads), digest, False)

    def _drop_uploads(self, digests: list[str], kept: str, of_one_client: bool) -> None:
        """Drop uploads, the first of the list first, until those of the list fit the limit."""
        name = "client_upload_bytes" if of_one_client else "stored_upload_bytes"
        total = sum(len(self._uploads[digest].data) for digest in digests)
        for digest in digests:
            if total <= getattr(self.limits, name):
                return
            if digest != kept:
                dropped = len(self._uploads.pop(digest).data)
                total -= dropped
                self._upload_bytes -= dropped

    @property
    def uploads(self) -> tuple[int, int]:
        """The number of stored uploads and their bytes."""
        with self._lock:
            return len(self._uploads), self._upload_bytes

    def _find_suffix(self, digest: str) -> str:
        """Return the suffix of the format of an upload or a file with a digest."""
        with self._lock:
            if digest in self._uploads:
                self._uploads.move_to_end(digest)
                return self._uploads[digest].suffix
            if digest in self._files_by_digest:
                return _format_suffix(self._files_by_digest[digest])
        for path in self._list_files().files.values():
            with contextlib.suppress(ExactlineError):
                if self._digest_file(path).sha256 == digest:
                    with self._lock:
                        self._files_by_digest[digest] = path
                    return _format_suffix(path)
        raise _unknown_model(f"sha256:{digest}")

    def _list_files(self) -> _Listing:
        """Return the files of the folder; those that a link leads to outside of it are left out."""
        if self.folder is None or self._listing.is_current():
            return self._listing
        began, root = time.time_ns(), self.folder.resolve()
        paths: list[Path] = []
        folders: dict[Path, int] = {}
        for folder, _, names in os.walk(self.folder):
            with contextlib.suppress(OSError):
                folders[Path(folder)] = Path(folder).stat().st_mtime_ns
            paths += [path for name in names if _format_suffix(path := Path(folder, name)) and _is_inside(path, root)]
        paths.sort()
        full = [path.relative_to(self.folder).as_posix() for path in paths]
        stems = [name[: len(name) - len(_file_suffix(name))] for name in full]
        counts = Counter(stems)
        files = {s if counts[s] == 1 else n: p for s, n, p in zip(stems, full, paths, strict=True)}
        is_final = all(then < began - CLOCK_SECONDS * 1e9 for then in folders.values())
        self._listing = _Listing(files, dict(zip(full, paths, strict=True)), folders, is_final)
        return self._listing

    def _find_file(self, name: str) -> Path:
        """Return the file of a name, given with or without its suffix; unknown names are looked up in the folder."""
        listing = self._listing
        path = listing.files.get(name) or listing.by_path.get(name)
        if path is None or not path.is_file():
            listing = self._list_files()
            path = listing.files.get(name) or listing.by_path.get(name)
        if path is None:
            raise _unknown_model(name)
        return path

    def _digest_file(self, path: Path) -> _FileDigest:
        """Return the digest and the size of a file, which is read again only if it has changed."""
        try:
            status = path.stat()
        except OSError:
            raise _unknown_model(path.name) from None
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
        with self._lock:
            file = self._file_digests.get(path)
        if file is None or file.state != state:
            self.limits.check("model_bytes", status.st_size, "bytes in the model's file")
            data = self._read_file(path)
            file = _FileDigest(state, hashlib.sha256(data).hexdigest(), len(data))
            with self._lock:
                self._file_digests[path] = file
        return file

    def _read_file(self, path: Path) -> bytes:
        """Read a file of the folder, where a link may have replaced it; the error does not tell clients where it is."""
        try:
            target = path.resolve()
            if self.folder is None or not target.is_relative_to(self.folder.resolve()):
                raise _unknown_model(path.name)
            data = read_file(target)
        except (FileError, OSError, RuntimeError):  # a loop of links is a RuntimeError
            raise FileError(
                "The model's file cannot be read.",
                where=f"model {path.name}",
                hint="Ask the operator to check the file.",
            ) from None
        self.limits.check("model_bytes", len(data), "bytes in the model's file")
        return data


def is_digest(name: str) -> bool:
    """Whether a model's name is "sha256:" and a digest."""
    return DIGEST_PATTERN.fullmatch(name) is not None


def _is_inside(path: Path, root: Path) -> bool:
    """Whether a path is a regular file that lies in a folder, links included."""
    try:
        return path.is_file() and (not path.is_symlink() or path.resolve().is_relative_to(root))
    except OSError:
        return False


def _file_suffix(name: str) -> str:
    """Return the suffix of a model's file name as written, including .gz; "" if the format is unknown."""
    plain = name.lower().removesuffix(".gz")
    suffix = next((suffix for suffix in FORMAT_SUFFIXES if plain.endswith(suffix)), "")
    return name[len(plain) - len(suffix) :] if suffix else ""


def _format_suffix(path: Path) -> str:
    """Return the suffix that stands for the format of a file; "" if the format is unknown."""
    return FORMAT_SUFFIXES.get(_file_suffix(path.name).lower().removesuffix(".gz"), "")


def _unknown_model(name: str) -> UnknownModelError:
    return UnknownModelError(
        f"The server has no model {name[:MAX_NAME_CHARS]!r}.",
        where="model",
        hint="client.models() lists the models; an upload may have been dropped to make room: upload it again.",
    )

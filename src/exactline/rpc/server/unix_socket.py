"""The file of a Unix socket: one that a dead server left is replaced, one that a server listens on is not."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...errors import ServiceError

SOCKET_MASK = 0o177  # of the permissions of a Unix socket
CONNECT_SECONDS = 2.0  # for a server to accept a connection
WHERE = "--socket"


class SocketFile:
    """The file of a Unix socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._created: tuple[int, int] | None = None  # device and inode

    @contextmanager
    def bind(self) -> Generator[None]:
        """Bind the socket inside the block: its file is for this user only, and a file that a dead server left is gone.

        Raises ServiceError if a server listens on it, or if there is a file that is not a socket.
        """
        self._remove_stale()
        mask = os.umask(SOCKET_MASK)
        try:
            yield
        finally:
            os.umask(mask)
        self._created = self._identify()

    def remove(self) -> None:
        """Remove the file, unless another server has replaced it."""
        if self._created is not None and self._identify() == self._created:
            self.path.unlink(missing_ok=True)

    def _identify(self) -> tuple[int, int] | None:
        try:
            status = self.path.lstat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _remove_stale(self) -> None:
        try:
            mode = self.path.lstat().st_mode
        except OSError:
            return
        if not stat.S_ISSOCK(mode):
            raise ServiceError(
                f"There is a file {self.path.name!r} that is not a socket.", where=WHERE, hint="Give another path."
            )
        if self._is_in_use():
            raise ServiceError(
                f"Another server listens on {self.path.name!r}.", where=WHERE, hint="Stop it, or give another path."
            )
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _is_in_use(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CONNECT_SECONDS)
            try:
                probe.connect(str(self.path))
            except (ConnectionRefusedError, FileNotFoundError):
                return False
            except OSError:
                return True  # busy, or another user's
        return True

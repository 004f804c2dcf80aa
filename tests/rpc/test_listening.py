"""The file of a Unix socket, TLS files and file descriptors: what a server checks before it listens."""

from __future__ import annotations

import resource
import socket
import stat
from pathlib import Path

import pytest

from exactline.errors import FileError, ServiceError
from exactline.rpc.server.certificates import Certificates
from exactline.rpc.server.descriptors import possible_connections
from exactline.rpc.server.server import Settings
from exactline.rpc.server.unix_socket import SocketFile
from tests.rpc.certificates import create_authority


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_the_socket_of_a_dead_server_is_replaced(tmp_path: Path):
    path = tmp_path / "socket"
    listen(path).close()  # leaves the file
    assert path.exists()
    file = SocketFile(path)
    with file.bind(), listen(path):
        pass
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.remove()
    assert not path.exists()


def test_the_socket_of_a_running_server_stays(tmp_path: Path):
    path = tmp_path / "socket"
    with listen(path) as server:
        other = SocketFile(path)
        with pytest.raises(ServiceError, match="Another server listens"), other.bind():
            pass
        other.remove()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            server.accept()[0].close()


def test_a_file_that_is_no_socket_stays(tmp_path: Path):
    path = tmp_path / "socket"
    path.write_text("mine")
    with pytest.raises(ServiceError, match="not a socket"), SocketFile(path).bind():
        pass
    assert path.read_text() == "mine"


def test_a_server_does_not_remove_the_socket_of_its_successor(tmp_path: Path):
    path = tmp_path / "socket"
    first = SocketFile(path)
    with first.bind(), listen(path):
        pass
    path.rename(tmp_path / "old")  # so that its inode is not used again
    with listen(path):
        first.remove()
        assert path.exists()


@pytest.mark.parametrize("wrong", ["garbage", "empty", "another key", "missing", "authorities"])
def test_certificates_that_cannot_be_used_do_not_replace_the_old_ones(tmp_path: Path, wrong: str):
    authority = create_authority(tmp_path, "authority")
    certificate, key = authority.sign("server")
    settings = Settings(tls_cert=certificate, tls_key=key, client_ca=authority.certificate)
    certificates = Certificates(settings)
    before = certificates._current
    if wrong == "missing":
        certificate.unlink()
    elif wrong == "another key":
        key.write_bytes(authority.sign("other")[1].read_bytes())
    elif wrong == "authorities":
        authority.certificate.write_text("garbage")
    else:
        certificate.write_text("garbage" if wrong == "garbage" else "")
    with pytest.raises(FileError):
        certificates.reload()
    assert certificates._current is before
    assert certificates._fetch() is None
    with pytest.raises(FileError):
        Certificates(settings)


def test_connections_leave_descriptors_for_everything_else():
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert possible_connections(1, 1) == 1
    if files != resource.RLIM_INFINITY:
        assert possible_connections(files, 2) < files

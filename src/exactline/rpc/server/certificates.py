"""The server's TLS certificate, which can be replaced while the server runs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import grpc

from ...errors import FileError
from .settings import Settings

WHERE = "--tls-cert, --tls-key, --client-ca"


class Certificates:
    """Reads certificate, key and authorities of clients; new connections use what was read last.

    Raises FileError if a file cannot be read, is not PEM, or if the key does not belong to the certificate.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._changed = False
        self._current = self._read()

    def credentials(self) -> Any:
        """Return the credentials of a gRPC server, None without TLS."""
        if self._current is None:
            return None
        return grpc.dynamic_ssl_server_credentials(
            self._current, self._fetch, require_client_authentication=self.settings.client_ca is not None
        )

    def reload(self) -> None:
        """Read the files again."""
        self._current = self._read()
        self._changed = True

    def _fetch(self) -> Any:
        """Return the files if they were read again since the last connection, else None."""
        changed, self._changed = self._changed, False
        return self._current if changed else None

    def _read(self) -> Any:
        settings = self.settings
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        try:
            check_certificate(settings.tls_cert, settings.tls_key, settings.client_ca)
            pair = settings.tls_key.read_bytes(), settings.tls_cert.read_bytes()
            roots = settings.client_ca.read_bytes() if settings.client_ca is not None else None
        except OSError as problem:
            raise FileError(
                f"A TLS file cannot be read: {problem.strerror}.", where=WHERE, hint="Give PEM files."
            ) from problem
        return grpc.ssl_server_certificate_configuration([pair], roots)


def check_certificate(certificate: Path, key: Path, authorities: Path | None) -> None:
    """Check that files are a certificate, its key without a password, and authorities, if there are any.

    gRPC itself says nothing about wrong files, and refuses every connection.

    Raises FileError, OSError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")
        if authorities is not None:
            context.load_verify_locations(authorities)
    except ssl.SSLError as problem:
        raise FileError(
            f"The TLS files cannot be used: {problem.reason or 'they are not PEM files'}.",
            where=WHERE,
            hint="Give PEM files: a certificate, the key that belongs to it, without a password, and authorities.",
        ) from problem

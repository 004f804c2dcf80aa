"""Certificate authorities and certificates for tests, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Authority:
    """Someone who signs certificates."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.pem"

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"

    def signed(self, name: str) -> tuple[Path, Path]:
        """A certificate for this machine, and its key."""
        certificate, key, request = (self.folder / f"{name}.{ending}" for ending in ("pem", "key", "csr"))
        names = self.folder / "names.cnf"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl("req", *_new(key), "-subj", f"/CN={name}", "-out", str(request))
        signer = ("-CA", str(self.certificate), "-CAkey", str(self.key), "-CAcreateserial")
        _openssl(
            "x509", "-req", "-in", str(request), *signer, "-days", "2", "-extfile", str(names), "-out", str(certificate)
        )
        return certificate, key


def authority(folder: Path, name: str) -> Authority:
    """A new one."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not here")
    made = Authority(folder, name)
    _openssl("req", "-x509", *_new(made.key), "-days", "2", "-subj", f"/CN={name}", "-out", str(made.certificate))
    return made


def _new(key: Path) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)

"""Certificate authorities and certificates, created with openssl."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.pem"

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"

    def sign(self, name: str) -> tuple[Path, Path]:
        """Create a certificate for this machine; returns its path and that of its key."""
        certificate, key, request = (self.folder / f"{name}.{ending}" for ending in ("pem", "key", "csr"))
        names = self.folder / "names.cnf"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _run_openssl("req", *_new_key(key), "-subj", f"/CN={name}", "-out", str(request))
        signer = ("-CA", str(self.certificate), "-CAkey", str(self.key), "-CAcreateserial")
        _run_openssl(
            "x509", "-req", "-in", str(request), *signer, "-days", "2", "-extfile", str(names), "-out", str(certificate)
        )
        return certificate, key


def create_authority(folder: Path, name: str) -> Authority:
    """Create a certificate authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which creates the certificates, is not installed")
    made = Authority(folder, name)
    _run_openssl(
        "req", "-x509", *_new_key(made.key), "-days", "2", "-subj", f"/CN={name}", "-out", str(made.certificate)
    )
    return made


def _new_key(key: Path) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key))


def _run_openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)

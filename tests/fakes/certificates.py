"""Self-signed certificates for TLS, made by openssl."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class CertificateFiles(NamedTuple):
    """PEM files."""

    certificate: Path
    key: Path


def self_signed(folder: Path, name: str = "tls") -> CertificateFiles:
    """Write `name`.crt and `name`.key, valid for one day."""
    files = CertificateFiles(folder / f"{name}.crt", folder / f"{name}.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-newkey", "ec"),
            *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=x", "-days", "1"),
            *("-keyout", files.key, "-out", files.certificate),
        ],
        check=True,
        capture_output=True,
    )
    return files

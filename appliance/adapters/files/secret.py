"""Checks of files with secrets: modes of key files, and pairs of certificate and key."""

import ssl
from pathlib import Path
from stat import S_IROTH, S_ISREG

_SOME_PASSWORD = "none"  # noqa: S105 - so that an encrypted key fails instead of asking the terminal


def secret_problem(path: Path) -> str | None:
    """Return the fault of a file that only root should read, as a phrase; None: none."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not S_ISREG(mode):
        return f"{path} is no regular file"
    if mode & S_IROTH:
        return f"everybody can read {path}: chmod 600 {path}"
    return None


def certificate_problem(certificate: Path, key: Path) -> str | None:
    """Return why a certificate and its key cannot be used, as a phrase; None: they can."""
    for path in (certificate, key):
        if not path.is_file():
            return f"{path} is not there"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_SOME_PASSWORD)
    except ssl.SSLError as error:
        words = (error.reason or "no PEM file").replace("_", " ").lower()
        return f"{certificate} and {key} do not make a pair that can be used ({words})"
    except OSError as error:
        return f"{certificate} and {key} cannot be read: {error.strerror}"
    return None

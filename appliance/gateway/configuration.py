"""Files that the gateway reads: settings, profiles and secrets, all compiled by apply."""

import logging
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.model.gateway import Configuration, Routed
from appliance.model.paths import APPLIED_DIR, GATEWAY_RUNTIME_DIR
from appliance.routing.model_names import routed
from appliance.switch.units.daemon_drop_ins import (
    CERTIFICATE,
    CERTIFICATE_KEY,
    ENGINE_KEY,
    ENGINE_KEY_FILE,
)
from appliance.system.applied.manifest import (
    MANIFEST,
    Recovered,
    recover_configuration,
    recover_manifest,
)
from appliance.system.files.regular import Stamp, read_small_file, stamp

_log = logging.getLogger(__name__)

_MOST_KEY_BYTES: Final = 4096
_MOST_CERTIFICATE_BYTES: Final = 1 << 20
"""Limit of a credential of systemd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFiles:
    """Directories of the gateway's files, and readers of those files."""

    applied: Path
    runtime: Path
    credentials: Path | None
    """Directory of the credentials; None: systemd has passed none."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "GatewayFiles":
        """Return the directories that systemd names in the environment, or the defaults."""
        credentials = environment.get("CREDENTIALS_DIRECTORY")
        return cls(
            applied=Path(environment.get("APPLIANCE_APPLIED_DIR", APPLIED_DIR)),
            runtime=Path(environment.get("RUNTIME_DIRECTORY", GATEWAY_RUNTIME_DIR)),
            credentials=Path(credentials) if credentials else None,
        )

    def read_configuration(self) -> Recovered[Configuration]:
        """Return the compiled settings. Raises `StoreError`."""
        return recover_configuration(self.applied)

    def read_catalogue(self) -> dict[str, Routed]:
        """Return the applied profiles by name. Raises `StoreError`."""
        found = recover_manifest(self.applied)
        if found.damage is not None:
            _log.error("%s", found.damage)
        return {n: routed(a, self._engine_key(n)) for n, a in found.content.items()}

    def manifest_stamp(self) -> Stamp | None:
        """Return what changes with the applied profiles; None: there is no manifest."""
        return stamp(self.applied / MANIFEST)

    def read_tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for addresses beyond loopback; None: no usable certificate."""
        if self.credentials is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        certificate, key = self.credentials / CERTIFICATE, self.credentials / CERTIFICATE_KEY
        try:
            context.load_cert_chain(certificate, key, password="none")  # noqa: S106 - no prompt
        except OSError as error:
            _log.error("the certificate cannot be used: %s", error.strerror or error)
            return None
        return context

    def certificate_watch(self, source: str) -> "CertificateWatch":
        """Return the watch of the certificate that systemd has read from `source`."""
        own = None if self.credentials is None else self.credentials / CERTIFICATE
        return CertificateWatch(own, Path(source) if source else None)

    def late_engine_keys(self, catalogue: Mapping[str, Routed]) -> list[str]:
        """Return the profiles whose engine's key this process has only after a restart of the service."""
        return [
            name
            for name, profile in sorted(catalogue.items())
            if (path := profile.handling.engine_key_file) and self._is_late(name, path)
        ]

    def _is_late(self, profile: str, path: str) -> bool:
        """Tell whether a key was handed over from another file, not at all, or before the file was written."""
        if self.credentials is None:
            return True
        given = self.credentials / f"{ENGINE_KEY}{profile}"
        source = self.credentials / f"{ENGINE_KEY_FILE}{profile}"
        try:
            handed_over_s = given.stat().st_mtime
            if read_small_file(source, _MOST_KEY_BYTES).decode("utf-8", "replace") != path:
                return True
        except FileNotFoundError:
            # A drop-in of an earlier release names no path.
            return not given.exists()
        except OSError:
            return True
        try:
            return Path(path).stat().st_mtime > handed_over_s
        except OSError:
            return False  # in a directory that this user may not search

    def _engine_key(self, profile: str) -> str | None:
        if self.credentials is None:
            return None
        try:
            text = read_small_file(self.credentials / f"{ENGINE_KEY}{profile}", _MOST_KEY_BYTES)
        except OSError:
            return None
        key = text.decode("latin-1").strip()
        # A lone dash stands for a file that did not exist when the gateway started.
        return key if key not in {"", "-"} and key.isprintable() else None


class CertificateWatch:
    """Comparison of the certificate that this process was given with the file from which systemd read it.

    Args:
        own: The credential; None: systemd has passed none.
        source: The file; None: no TLS.
    """

    def __init__(self, own: Path | None, source: Path | None) -> None:
        self._own = own
        self._source = source
        self._seen: Stamp | None = None
        self._renewed = False

    def is_renewed(self) -> bool:
        """Tell whether another certificate is there; False too where this user may not read the file."""
        if self._own is None or self._source is None:
            return False
        seen = stamp(self._source)
        if seen != self._seen:
            self._seen, self._renewed = seen, self._differs(self._own, self._source)
        return self._renewed

    def _differs(self, *files: Path) -> bool:
        try:
            own, present = (
                read_small_file(one, _MOST_CERTIFICATE_BYTES, follow_links=True) for one in files
            )
        except OSError:
            return False
        return own != present


class AllowedPaths:
    """Admin paths of engines that are exposed all the same; a last ``*`` stands for any end."""

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = tuple(patterns)
        self._exact = frozenset(p for p in patterns if not p.endswith("*"))
        self._prefixes = tuple(p[:-1] for p in patterns if p.endswith("*"))

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str) or path in self._exact:
            return isinstance(path, str)
        # Engines disagree about the meaning of these characters.
        plain = not any(odd in path for odd in ("..", "//", "%", "\\"))
        return plain and path.startswith(self._prefixes)

"""Manifest of the profiles that `appliance apply` installed.

JSON in a directory that only root writes. The daemon and the quick commands read the manifest and
never a profile, so that they act on what systemd has. Standard library only: it is read on every
`appliance status`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

from appliance.model.claims import ALL_GPUS, Claim
from appliance.model.names import BACKEND_GROUP, is_profile_name
from appliance.model.profile import Applied, Catalogue
from appliance.system.applied.documents import Recovered, copy_of, decoded, recover
from appliance.system.files.regular import OddFileError, Stamp, read_small_file, stamp
from appliance.wire.typed_json import from_json

MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_MAX_BYTES: Final = 16 << 20
_MAX_PROFILE_BYTES: Final = 1 << 20
_Stamps = tuple[Stamp | None, Stamp | None]


class ManifestProfiles:
    """Port `Profiles`, on the manifest in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: tuple[_Stamps, Recovered[Catalogue]] | None = None

    @property
    def damage(self) -> str | None:
        """Return why the manifest's copy was read last, for root; None: the manifest was read."""
        return None if self._read is None else self._read[1].damage

    def load(self) -> Catalogue:
        """Read the manifest, if it has changed.

        Raises:
            StoreError: it and its copy are damaged; none yet is empty.
        """
        path = self._directory / MANIFEST
        seen = stamp(path), stamp(copy_of(path))
        if self._read is None or self._read[0] != seen:
            self._read = seen, recover_manifest(self._directory)
        return self._read[1].content


def recover_manifest(directory: Path) -> Recovered[Catalogue]:
    """Return every applied profile by name; none when nothing was ever applied.

    Raises:
        StoreError: the file and its copy cannot be read, are damaged, or were written by a newer
            release.
    """
    return recover(directory / MANIFEST, _MAX_BYTES, decode, {})


def read_manifest(directory: Path) -> Catalogue:
    """Return the same without saying which of the two files was read. Raises `StoreError`."""
    return recover_manifest(directory).content


def is_edited(applied: Applied) -> bool:
    """Tell whether the profile's file is not the one that was applied; False when unreadable."""
    try:
        content = read_small_file(applied.source_path, _MAX_PROFILE_BYTES, follow_links=True)
    except OddFileError:
        return True
    except OSError:
        return False
    return sha256(content).hexdigest() != applied.source_sha256


class EditWatch:
    """Watch on the profiles' files; reads only files that have changed since the last call."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Stamp, str, bool]] = {}
        """State by path: the file's stamp, the digest that was applied, whether the two differ."""

    def edited(self, catalogue: Catalogue) -> frozenset[str]:
        """Return the profiles whose file changed since it was applied."""
        return frozenset(name for name, applied in catalogue.items() if self._is_edited(applied))

    def _is_edited(self, applied: Applied) -> bool:
        seen = stamp(applied.source_path)
        known = self._known.get(applied.source_path)
        if known is not None and known[:2] == (seen, applied.source_sha256):
            return known[2]
        edited = is_edited(applied)
        if seen is not None:
            self._known[applied.source_path] = seen, applied.source_sha256, edited
        return edited


def decode(content: bytes | str, where: str = MANIFEST) -> Catalogue:
    """Return the profiles in a manifest's text.

    Raises:
        StoreError: it is damaged, or of a newer release.
    """
    return decoded(content, where, _FORMAT, _catalogue)


def encode(catalogue: Catalogue, version: str) -> str:
    """Return the manifest's text: equal catalogues give equal texts."""
    document = {
        "format": _FORMAT,
        "version": version,
        "profiles": {name: manifest_entry(applied) for name, applied in sorted(catalogue.items())},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _catalogue(document: Mapping[str, Any]) -> Catalogue:
    return {name: _applied(name, entry) for name, entry in document["profiles"].items()}


def manifest_entry(applied: Applied) -> Mapping[str, object]:
    """Return an applied profile as the manifest has it: the devices of its claim are a sorted list."""
    return asdict(applied) | {"claim": sorted(applied.claim.devices)}


def _applied(name: str, entry: Mapping[str, Any]) -> Applied:
    if name != entry["name"] or not is_profile_name(name):
        raise ValueError(f"{name!r} is no profile")
    claim = {"devices": entry["claim"]}
    # Releases before these two keys used the claimed GPUs, and one user for all engines.
    gpus = entry["gpus"] if "gpus" in entry else _claimed(from_json(Claim, claim))
    applied = from_json(Applied, {"user": BACKEND_GROUP, **entry, "claim": claim, "gpus": gpus})
    if (applied.endpoint.port is None) == (applied.endpoint.socket is None):
        raise ValueError(f"{name} has not one endpoint")
    return applied


def _claimed(claim: Claim) -> Literal["all"] | list[int]:
    """Return the GPUs of a claim as a manifest lists used ones."""
    if ALL_GPUS in claim.gpus:
        return "all"
    return sorted(int(device.removeprefix("gpu-")) for device in claim.gpus)

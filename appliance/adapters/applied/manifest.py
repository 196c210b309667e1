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

from appliance.adapters.applied.documents import Recovered, copy_of, decoded, recover
from appliance.adapters.files.regular import OddFileError, Stamp, read_small_file, stamp
from appliance.domain.claims import ALL_GPUS, Claim
from appliance.domain.names import BACKEND_GROUP, is_profile_name
from appliance.domain.need import Estimate
from appliance.domain.profile import (
    Applied,
    Catalogue,
    Deadlines,
    Endpoint,
    Handling,
    Mark,
    Need,
    WarmUp,
)

MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_MAX_BYTES: Final = 16 << 20
_MAX_PROFILE_BYTES: Final = 1 << 20
_Stamps = tuple[Stamp | None, Stamp | None]


class ManifestProfiles:
    """The port `Profiles` on the manifest in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: tuple[_Stamps, Recovered[Catalogue]] | None = None

    @property
    def damage(self) -> str | None:
        """Why the copy of the manifest was read last, for root; None: it was not."""
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
    """Watch on the profiles' files: it reads only files that have changed since the last call."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Stamp, str, bool]] = {}
        """By path: the file's stamp, the digest that was applied, whether they agree no more."""

    def edited(self, catalogue: Catalogue) -> frozenset[str]:
        """Return the profiles whose file changed since it was applied."""
        return frozenset(name for name, applied in catalogue.items() if self._is_edited(applied))

    def _is_edited(self, applied: Applied) -> bool:
        seen = stamp(Path(applied.source_path))
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
        "profiles": {name: _entry(applied) for name, applied in sorted(catalogue.items())},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _catalogue(document: Mapping[str, Any]) -> Catalogue:
    return {name: _applied(name, entry) for name, entry in document["profiles"].items()}


def _entry(applied: Applied) -> Mapping[str, object]:
    return asdict(applied) | {"claim": sorted(applied.claim.devices)}


def _applied(name: str, entry: Mapping[str, Any]) -> Applied:
    if name != entry["name"] or not is_profile_name(name):
        raise ValueError(f"{name!r} is no profile")
    claim = Claim(devices=frozenset(_texts(entry["claim"])))
    return Applied(
        name=name,
        **{key: _text(entry, key) for key in _TEXTS},
        model_path=None if entry["model_path"] is None else _text(entry, "model_path"),
        served=_texts(entry["served"]),
        endpoint=_endpoint(entry["endpoint"]),
        claim=claim,
        need=Need(**{key: _whole(value) for key, value in entry["need"].items()}),
        deadlines=Deadlines(**{key: float(value) for key, value in entry["deadlines"].items()}),
        warm_up=WarmUp(entry["warm_up"]),
        first_mark=Mark(entry["first_mark"]),
        conflicts=_texts(entry["conflicts"]),
        # Releases before these keys wrote none of them: each then has its default.
        fingerprint=_text(entry, "fingerprint") if "fingerprint" in entry else "",
        gpus=_gpus(entry["gpus"]) if "gpus" in entry else _claimed(claim),
        gpu_split=tuple(float(part) for part in entry.get("gpu_split", ())),
        vram_fraction=_number(entry.get("vram_fraction")),
        ram_fraction=_number(entry.get("ram_fraction")),
        estimate=_estimate(entry.get("estimate")),
        estimate_problem=_text(entry, "estimate_problem") if "estimate_problem" in entry else "",
        locks_memory=entry.get("locks_memory") is True,
        assume_free=entry.get("assume_free") is True,
        handling=_handling(entry["handling"]) if "handling" in entry else Handling(),
        user=_text(entry, "user") if "user" in entry else BACKEND_GROUP,  # of all engines once
        files=_texts(entry.get("files", [])),
        places=_texts(entry.get("places", [])),
        programs=_texts(entry.get("programs", [])),
    )


def _handling(entry: Mapping[str, Any]) -> Handling:
    file = entry["engine_key_file"]
    return Handling(
        set_parameters=dict(entry["set_parameters"]),
        strip_parameters=_texts(entry["strip_parameters"]),
        on_request=entry["on_request"] is True,
        engine_key_file=None if file is None else _text(entry, "engine_key_file"),
    )


def _estimate(entry: Mapping[str, Any] | None) -> Estimate | None:
    if entry is None:
        return None
    return Estimate(
        vram_bytes=int(entry["vram_bytes"]),
        least_vram_bytes=int(entry["least_vram_bytes"]),
        ram_bytes=int(entry["ram_bytes"]),
        notes=_texts(entry["notes"]),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _gpus(value: Any) -> Literal["all"] | tuple[int, ...]:
    return "all" if value == "all" else tuple(int(index) for index in value)


def _claimed(claim: Claim) -> Literal["all"] | tuple[int, ...]:
    """Return the used GPUs where an older manifest names only claims."""
    if ALL_GPUS in claim.gpus:
        return "all"
    return tuple(sorted(int(device.removeprefix("gpu-")) for device in claim.gpus))


_TEXTS: Final = (
    "description",
    "engine",
    "model",
    "binary",
    "health_path",
    "source_path",
    "source_sha256",
)


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is no text")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise TypeError(f"{values!r} is no list of texts")
    return tuple(values)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _endpoint(entry: Mapping[str, Any]) -> Endpoint:
    return Endpoint(
        port=_whole(entry["port"]),
        socket=None if entry["socket"] is None else _text(entry, "socket"),
    )

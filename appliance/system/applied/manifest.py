"""Files that `appliance apply` compiled: the manifest of the profiles, and gateway.json beside it.

JSON with a format and a version, in a directory that only root writes. Daemons and quick commands read these
files and never a profile, so that they act on what systemd has. Apply writes each file twice. The copy is read
where the file itself is damaged or missing, so that what was applied last holds until the next apply writes
both anew.

No pydantic and no TOML: `appliance status` and the gateway read these files at every start.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

from appliance.model.claims import ALL_GPUS, Claim
from appliance.model.errors import StoreError
from appliance.model.gateway import Configuration
from appliance.model.json_reader import decode_json
from appliance.model.names import BACKEND_GROUP, is_profile_name
from appliance.model.profile import Applied, Catalogue
from appliance.system.files.regular import OddFileError, Stamp, read_small_file, stamp
from appliance.wire.typed_json import from_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Generic[T]):
    """Content that was applied last, and the damage of its file."""

    content: T
    damage: str | None = None
    """Sentence for root that says why the copy was read; None: the file itself was read."""


def copy_of(path: Path) -> Path:
    """Return the path of the copy of an applied file."""
    return path.with_name(f"{path.name}.copy")


def recover(
    path: Path, most_bytes: int, decode: Callable[[bytes, str], T], nothing: T
) -> Recovered[T]:
    """Return the content of a file, or else of its copy.

    Args:
        path: Of the file.
        most_bytes: A larger file is damaged.
        decode: Decodes bytes of the file, given its name for errors; may raise `StoreError`.
        nothing: Its content while nothing was ever applied.

    Raises:
        StoreError: both are damaged; the error describes the damage of the file itself.
    """
    copy = copy_of(path)
    try:
        content = read_applied(path, most_bytes)
        if content is not None:
            return Recovered(content=decode(content, str(path)))
        if not copy.exists():
            return Recovered(content=nothing)
        damage = StoreError(f"{path} is missing: sudo appliance apply")
    except StoreError as error:
        damage = error
    try:
        content = read_applied(copy, most_bytes)
        if content is not None:
            return Recovered(
                content=decode(content, str(copy)), damage=f"{damage}; its copy is used"
            )
    except StoreError:
        pass  # Report the damage of the file itself, which root has to repair.
    raise damage


def read_applied(path: Path, most_bytes: int) -> bytes | None:
    """Return a file's content; None: nothing was ever applied.

    Raises:
        StoreError: it cannot be read, is no file or is larger than `most_bytes`.
    """
    try:
        return read_small_file(path, most_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def decoded(content: bytes | str, where: str, newest: int, build: Callable[[Any], T]) -> T:
    """Return what `build` makes of the document in a file.

    Args:
        content: Of the file.
        where: Name of the file for errors.
        newest: The newest format that is known.
        build: Builds the content; ValueError, TypeError, KeyError or AttributeError mean damage.

    Raises:
        StoreError: it is damaged, or of a newer release.
    """
    try:
        document = decode_json(content)
        if document["format"] > newest:
            raise StoreError(
                f"{where} was written by appliance {document['version']}, which is newer:"
                " sudo appliance apply"
            )
        return build(document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{where} is damaged ({error}): sudo appliance apply") from error


# --- the manifest --------------------------------------------------------------------

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
    return recover(directory / MANIFEST, _MAX_BYTES, decode_manifest, {})


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


def decode_manifest(content: bytes | str, where: str = MANIFEST) -> Catalogue:
    """Return the profiles in a manifest's text.

    Raises:
        StoreError: it is damaged, or of a newer release.
    """
    return decoded(content, where, _FORMAT, _catalogue)


def encode_manifest(catalogue: Catalogue, version: str) -> str:
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


# --- gateway.json --------------------------------------------------------------------

GATEWAY_FILE: Final = "gateway.json"
_CONFIGURATION_FORMAT: Final = 1
_MAX_CONFIGURATION_BYTES: Final = 1 << 20


def recover_configuration(directory: Path) -> Recovered[Configuration]:
    """Return the configuration that was applied last; the defaults when nothing ever was.

    Raises:
        StoreError: the file and its copy cannot be read, are damaged, or were written by a newer
            release.
    """
    return recover(
        directory / GATEWAY_FILE, _MAX_CONFIGURATION_BYTES, decode_configuration, Configuration()
    )


class DamageWatch:
    """Watch on the file and its copy, for frequent callers; reads only when a file has changed.

    Args:
        directory: Where apply writes them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: tuple[tuple[Stamp | None, Stamp | None], str | None] | None = None

    def damage(self) -> str | None:
        """Return what root should know about the two files; None: nothing."""
        path = self._directory / GATEWAY_FILE
        seen = stamp(path), stamp(copy_of(path))
        if self._known is None or self._known[0] != seen:
            self._known = seen, _damage(self._directory)
        return self._known[1]


def _damage(directory: Path) -> str | None:
    try:
        return recover_configuration(directory).damage
    except StoreError as error:
        return str(error)


def decode_configuration(content: bytes | str, where: str = GATEWAY_FILE) -> Configuration:
    """Return the configuration in a file's text; keys that it lacks have their defaults.

    Raises:
        StoreError: it is damaged, or of a newer release.
    """
    return decoded(content, where, _CONFIGURATION_FORMAT, partial(from_json, Configuration))


def encode_configuration(configuration: Configuration, version: str) -> str:
    """Return the file's text: equal configurations give equal texts."""
    document = {"format": _CONFIGURATION_FORMAT, "version": version, **asdict(configuration)}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

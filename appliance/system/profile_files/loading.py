"""Profiles from TOML files: one model a file, the stem is the name.

A bad file gives one error that lists everything wrong with it, each with its line, and never
takes the others down.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, cast

import pydantic
from pydantic import ValidationError

from appliance.engines import ENGINES
from appliance.model.errors import ProfileError
from appliance.model.names import is_profile_name
from appliance.model.profile import Catalogue
from appliance.model.spec import EngineOptions, Profile, Where
from appliance.model.value_types import shown
from appliance.profiles.compilation import ProfileSource
from appliance.profiles.rules import collisions, problems
from appliance.system.toml.file import (
    Document,
    Fault,
    FaultyFileError,
    fault_lines,
    parse_document,
    read_document,
)
from appliance.system.toml.tables import (
    MOST_FAULTS,
    ModelFault,
    Table,
    given,
    model_faults,
    table_of,
    validated,
)

_FIELDS: Final = {name: name.replace("-", "_") for name in ENGINES}
"""Fields of the schema that hold the tables of engines, by engine."""


@cache
def profile_file(engines: frozenset[str] = frozenset(ENGINES)) -> type[Table]:
    """Return the model of a file. Its values are those of the dataclasses; a missing key has no value.

    Args:
        engines: Engines whose tables a file may have. To make the model of all takes a sixth of an apply.
    """
    return table_of(
        Profile,
        engine=(Literal[tuple(ENGINES)], pydantic.Field(description="the program that answers")),
        **{
            _FIELDS[engine.name]: (
                validated(engine.options | None),
                pydantic.Field(default=None, alias=engine.name, description="see below"),
            )
            for engine in ENGINES.values()
            if engine.name in engines
        },
    )


def engines_in(table: Mapping[str, Any]) -> frozenset[str]:
    """Return the engines whose tables a parsed file has."""
    return frozenset(ENGINES.keys() & table.keys())


def engine_of(file: Table) -> str:
    """Return the name of the engine in a checked file."""
    return str(given(file)["engine"])


def engine_tables(file: Table) -> Mapping[str, EngineOptions]:
    """Return the tables of engines in a checked file, by engine."""
    values = given(file)
    return {name: values[field] for name, field in _FIELDS.items() if field in values}


def profile_of(name: str, file: Table) -> Profile:
    """Return the profile `name` as its checked file defines it.

    The table of its engine may be missing only if every option in it has a default.
    """
    engine = ENGINES[engine_of(file)]
    values: dict[str, Any] = {"served": (name,), "gpus": engine.default_gpus}
    values |= {key: value for key, value in given(file).items() if key not in _FIELDS.values()}
    options = engine_tables(file).get(engine.name)
    return Profile(name=name, **values, options=engine.options() if options is None else options)


# --- files ---------------------------------------------------------------------------

SUFFIX: Final = ".toml"
NAME_RULE: Final = "up to 48 of a-z, 0-9, dot, dash and underscore, the first a letter or a digit"
_UNKNOWN_KEY: Final = "extra_forbidden"
"""pydantic's name of the fault."""
_EMPTY: Final[Mapping[int, str]] = {}
_NONE_BEFORE: Final[Catalogue] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedProfiles:
    """Content of a directory of profiles. A file is in `profiles` or in `errors`, never in both."""

    profiles: Mapping[str, Profile]
    """Profiles by name, sorted."""
    sources: Mapping[str, ProfileSource]
    """Files of the profiles in `profiles`."""
    errors: Mapping[str, ProfileError]
    """Errors by file name without its suffix, which need not be a profile's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    profile: Profile
    source: ProfileSource
    document: Document


def load_profile(path: Path) -> Profile:
    """Return the profile in a file.

    Raises:
        ProfileError: one line for everything that is wrong with the file.
    """
    return _load(path).profile


def parse_profile(name: str, content: bytes, file: str | None = None) -> Profile:
    """Return the profile that a file `file` (default: NAME.toml) with this content would hold.

    Raises:
        ProfileError: one line for everything that is wrong with it.
    """
    file = file or f"{name}{SUFFIX}"
    try:
        _check_name(name)
        return _profile(name, parse_document(content))
    except FaultyFileError as error:
        raise ProfileError(fault_lines(file, error.faults)) from error


def profile_faults(name: str, content: bytes) -> tuple[Fault, ...]:
    """Return what is wrong with the profile that a file with this content would hold; empty: nothing."""
    try:
        _check_name(name)
        _profile(name, parse_document(content))
    except FaultyFileError as error:
        return error.faults
    return ()


def load_profiles(
    directory: Path, reserved: Mapping[int, str] = _EMPTY, before: Catalogue = _NONE_BEFORE
) -> LoadedProfiles:
    """Return every profile in a directory. Other files, and hidden ones, are ignored.

    Args:
        directory: Holds the ``*.toml`` files.
        reserved: Ports that others own, and what to call their owner.
        before: Profiles as they are applied now: each keeps its port.

    Raises:
        ProfileError: the directory itself cannot be read.
    """
    found: dict[str, _Read] = {}
    errors: dict[str, ProfileError] = {}
    for path in _files(directory):
        try:
            found[path.stem] = _load(path)
        except ProfileError as error:
            errors[path.stem] = error
    errors |= _collided(found, reserved, before)
    good = {name: read for name, read in found.items() if name not in errors}
    return LoadedProfiles(
        profiles={name: read.profile for name, read in good.items()},
        sources={name: read.source for name, read in good.items()},
        errors=dict(sorted(errors.items())),
    )


def _files(directory: Path) -> list[Path]:
    try:
        entries = sorted(directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ProfileError(f"cannot read {directory}: {error.strerror}") from error
    return [p for p in entries if p.suffix == SUFFIX and not p.name.startswith(".")]


def _load(path: Path) -> _Read:
    try:
        _check_name(path.stem)
        document = read_document(path)
        return _Read(
            profile=_profile(path.stem, document),
            source=source_of(path, document.sha256),
            document=document,
        )
    except FaultyFileError as error:
        raise ProfileError(fault_lines(_shown_file(path), error.faults)) from error


def source_of(path: Path, sha256: str) -> ProfileSource:
    """Return the source that a file is, once it has been read; `sha256`: of its bytes."""
    try:
        modified_unix_s = int(path.stat().st_mtime)
    except OSError:
        modified_unix_s = 0
    return ProfileSource(path=str(path), sha256=sha256, modified_unix_s=modified_unix_s)


def _shown_file(path: Path) -> str:
    return path.name if is_profile_name(path.stem) else shown(path.name)


def _check_name(name: str) -> None:
    if not is_profile_name(name):
        raise FaultyFileError(
            [Fault(line=None, text=f"the file's name is no profile name: {NAME_RULE}")]
        )


def _profile(name: str, document: Document) -> Profile:
    """Return the profile in `document`. Raises `FaultyFileError` with all its faults."""
    file, faults, unread = _checked(document.table)
    profile = None
    if file is not None:
        faults += _strange_tables(file)
        engine = engine_of(file)
        needed = _needed_options(engine)
        if not needed or engine in engine_tables(file):
            profile = profile_of(name, file)
            faults += [ModelFault(p.where, p.text) for p in problems(profile, unread)]
        elif engine not in unread:
            text = f"engine {engine} needs a table [{engine}] with {' and '.join(needed)}"
            faults.append(ModelFault(("engine",), text))
    if faults or profile is None:
        raise FaultyFileError(_placed(fault, document) for fault in dict.fromkeys(faults))
    return profile


def _checked(
    table: Mapping[str, Any],
) -> tuple[Table | None, list[ModelFault], frozenset[str]]:
    """Return `table` as the schema reads it, its faults, and the keys that had to be left out.

    What has a fault is left out and the rest still read, so that one look at the file finds everything.
    """
    try:
        return profile_file(engines_in(table)).model_validate(table), [], frozenset()
    except ValidationError as error:
        faults = [_explained(f) for f in model_faults(error, profile_file(), table)]
        kinds = [e["type"] for e in error.errors(include_input=False, include_url=False)]
    if len(kinds) > MOST_FAULTS:
        return None, faults, frozenset()
    unknown = [f.where for f, kind in zip(faults, kinds, strict=True) if kind == _UNKNOWN_KEY]
    wrong = [f.where for f, kind in zip(faults, kinds, strict=True) if kind != _UNKNOWN_KEY]
    unread = frozenset(str(where[0]) for where in wrong)
    rest = {k: v for k, v in _without(table, unknown).items() if k not in unread}
    try:
        return profile_file().model_validate(rest), faults, unread
    except ValidationError:  # without its engine, or with a table that lacks a key
        return None, faults, unread


def _explained(fault: ModelFault) -> ModelFault:
    """Return a fault, of a key that an earlier release had with the reason why it is gone."""
    engine = ENGINES.get(str(fault.where[0])) if len(fault.where) == len(("table", "key")) else None
    reason = None if engine is None else engine.former_keys.get(str(fault.where[1]))
    if reason is None:
        return fault
    text = f"{fault.where[1]} is gone ({reason}): remove it, as appliance edit does"
    return ModelFault(fault.where, text)


def _without(table: Mapping[str, Any], places: list[Where]) -> dict[str, Any]:
    """Return `table` without the keys at `places`, which are at most two levels down."""
    gone = set(places)
    return {
        key: {k: v for k, v in value.items() if (key, k) not in gone}
        if isinstance(value, dict)
        else value
        for key, value in table.items()
        if (key,) not in gone
    }


def _strange_tables(file: Table) -> Iterator[ModelFault]:
    """Find tables of engines that this profile does not use."""
    own = engine_of(file)
    for engine in engine_tables(file):
        if engine != own:
            text = f"[{engine}] is for another engine: this profile's is {own}"
            yield ModelFault((engine,), text)


def _needed_options(engine: str) -> list[str]:
    """Return the options of an engine that its table must have; empty: the table may be missing."""
    return [
        option.name
        for option in fields(ENGINES[engine].options)
        if option.default is MISSING and option.default_factory is MISSING
    ]


def _placed(fault: ModelFault, document: Document) -> Fault:
    return Fault(line=document.line(_as_written(fault.where, document)), text=fault.text)


def _as_written(where: Where, document: Document) -> Where:
    """Return `where`, or the quoted spelling ``"Service.Nice"`` of a key of [unit]."""
    if where[:1] == ("unit",) and len(where) == len(("unit", "Section", "Key")):
        quoted = f"{where[1]}.{where[2]}"
        if quoted in cast("Mapping[str, Any]", document.table["unit"]):
            return ("unit", quoted)
    return where


def _collided(
    found: Mapping[str, _Read], reserved: Mapping[int, str], before: Catalogue
) -> Mapping[str, ProfileError]:
    by_name = collisions({name: read.profile for name, read in found.items()}, reserved, before)
    return {
        name: ProfileError(
            fault_lines(
                f"{name}{SUFFIX}",
                [_placed(ModelFault(p.where, p.text), found[name].document) for p in problems_],
            )
        )
        for name, problems_ in by_name.items()
    }

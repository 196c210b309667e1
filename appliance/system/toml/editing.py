"""Changes to the text of a profile, or of the file of the targets, that keep its comments, order and spacing."""

from collections.abc import Iterator, Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, AoT
from tomlkit.toml_document import TOMLDocument

from appliance.engines import ENGINES
from appliance.model.errors import ProfileError
from appliance.model.profile_values import Override
from appliance.model.targets import Target
from appliance.switch.units.drift import Adoption
from appliance.switch.units.overrides import ADDED


def adopted(text: str, adoption: Adoption, file: str) -> str:
    """Return the profile `text` with the settings of `adoption` in [unit] and [env].

    Raises:
        ProfileError: the profile is not TOML, or [unit] is no table.
    """
    try:
        document = tomlkit.parse(text)
        for override in adoption.overrides:
            _set_override(document, override)
        for name, value in adoption.environment.items():
            _table(document, "env")[name] = value
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, TypeError) as error:
        raise ProfileError(f"{file}: {error}: correct it, then appliance apply") from error


def migrated(text: str) -> tuple[str, Mapping[str, str]]:
    """Return the profile `text` without keys of earlier releases, and the reason for each that is gone.

    A text that is not TOML is left alone: checking it shows where the fault is.
    """
    try:
        document = tomlkit.parse(text)
    except TOMLKitError:
        return text, {}
    gone: dict[str, str] = {}
    for name, engine in ENGINES.items():
        table = document.get(name)
        if isinstance(table, AbstractTable):
            for key, reason in engine.former_keys.items():
                if key in table:
                    table.remove(key)
                    gone[f"[{name}] {key}"] = reason
    return (tomlkit.dumps(document) if gone else text), gone


def _set_override(document: TOMLDocument, override: Override) -> None:
    unit = _table(document, "unit")
    # [unit] may say Service.Nice, "Service.Nice", or have a table Service.
    quoted = override.name in unit
    home, key = (unit, override.name) if quoted else (unit.get(override.section), override.key)
    values = override.values
    if override.name in ADDED and home is not None:
        values = (*_listed(home.get(key)), *values)
    value = values[0] if len(values) == 1 else list(values)
    if home is not None:
        home[key] = value
    else:
        # One dotted line, as people write it, rather than a table of its own.
        unit.append(tomlkit.key([override.section, override.key]), tomlkit.item(value))


def _listed(value: Any) -> tuple[str, ...]:
    """Return the values that an override has already."""
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _table(document: TOMLDocument, name: str) -> AbstractTable:
    if name not in document:
        document.append(name, tomlkit.table())
    table = document[name]
    if not isinstance(table, AbstractTable):
        raise TypeError(f"{name} is no table")
    return table


# --- the file of the targets ---------------------------------------------------------

_TABLE = "target"


def with_target(text: str, target: Target) -> str:
    """Return the text of the file, which is valid, with one more target."""
    document = tomlkit.parse(text)
    table = tomlkit.table()
    table.add("name", target.name)
    table.add("url", target.url)
    table.add("min_severity", target.min_severity.value)
    if target.click_url:
        table.add("click", target.click_url)
    if target.box_silent is not None:
        table.add("box_silent", target.box_silent)
    rows = document.get(_TABLE)
    if not isinstance(rows, AoT):
        document.pop(_TABLE, None)  # target = []
        rows = tomlkit.aot()
        document.append(_TABLE, rows)
    rows.append(table)
    return tomlkit.dumps(document)


def without_target(text: str, name: str) -> str:
    """Return the text of the file, which is valid, without a target."""
    document = tomlkit.parse(text)
    rows: Any = document.get(_TABLE, [])
    for number in reversed([*_numbers(document, name)]):
        del rows[number]
    if not len(rows):
        document.pop(_TABLE, None)
    return tomlkit.dumps(document)


def _numbers(document: TOMLDocument, name: str) -> Iterator[int]:
    for number, row in enumerate(document.get(_TABLE, [])):
        if row.get("name") == name:
            yield number


def with_heartbeat(text: str, url: str) -> str:
    """Return the text of the file, which is valid, with another ``heartbeat_url``; empty: none."""
    document = tomlkit.parse(text)
    if not url:
        document.pop("heartbeat_url", None)
    elif "heartbeat_url" in document:
        document["heartbeat_url"] = url
    else:
        # Above the tables: below one it would be a key of that.
        first = f"heartbeat_url = {tomlkit.item(url).as_string()}\n"
        return first + text
    return tomlkit.dumps(document)

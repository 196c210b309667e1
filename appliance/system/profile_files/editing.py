"""Changes to a profile's text that keep its comments, order and spacing."""

from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable
from tomlkit.toml_document import TOMLDocument

from appliance.engines import ENGINES
from appliance.model.errors import ProfileError
from appliance.model.profile_values import Override
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

    A text that is not TOML is left alone: checking it tells where the fault is.
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

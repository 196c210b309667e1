"""Schema of a profile's file: the keys of `Profile`, and the tables of all engines.

The keys are declared with the dataclasses, in `appliance.model.spec` and in each engine's module.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal

import pydantic

from appliance.engines import ENGINES
from appliance.model.spec import EngineOptions, Profile
from appliance.system.toml.tables import Table, given, table_of, validated

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

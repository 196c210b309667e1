"""Stability of schemas: additions pass, and whatever breaks a reader is told."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from appliance.cli.schemas.output_reference import (
    OUTPUTS,
    BreakingChangeError,
    OutputSchema,
    checked_text,
)
from appliance.cli.schemas.schema_compatibility import breaking_changes
from appliance.wire.json_schemas import Schema

STATUS = next(output for output in OUTPUTS if output.name == "status").schema()
Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> Schema:
    """The status schema with a change to its definitions."""
    schema = copy.deepcopy(STATUS)
    change(schema["$defs"])
    return schema


def properties(definitions: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = definitions[name]["properties"]
    return found


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: properties(d, "ProfileRow").pop("mark"), "mark of"),
        (lambda d: properties(d, "ProfileRow").update(name={"type": "integer"}), "another type"),
        (
            lambda d: properties(d, "ProfileRow").update(name={"type": ["string", "null"]}),
            "name of each",
        ),
        (lambda d: d["ProfileRow"]["required"].remove("name"), "name of"),
        (lambda d: properties(d, "ProfileRow")["state"]["enum"].remove("serving"), "serving"),
        (
            lambda d: properties(d, "ProfileRow").update(name={"enum": [1, 2]}),
            "name of each part of profiles of the document has another type",
        ),
        (lambda d: properties(d, "HolderRow").pop("pid"), "pid of"),
        (
            lambda d: properties(d, "VramNeed")["gpus"].pop("additionalProperties"),
            "each part of gpus",
        ),
        (lambda d: properties(d, "GpuRow").update(holders={"type": "null"}), "alternatives"),
    ],
)
def test_a_change_that_breaks_readers_is_told(change: Change, told: str) -> None:
    """A key that goes, or has another type, or may be missing, is found wherever it is."""
    assert told in " | ".join(breaking_changes(STATUS, changed(change)))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: properties(d, "ProfileRow").update(colour={"type": "string"}),
        lambda d: d["ProfileRow"]["required"].append("note"),
        lambda d: properties(d, "ProfileRow")["state"]["enum"].append("dreaming"),
        lambda d: properties(d, "ProfileRow").update(name={"enum": ["a", "b"]}),
        lambda d: d["ProfileRow"].update(description="Other words."),
        lambda d: d.update(Unused={"type": "object"}),
    ],
    ids=[
        "a key",
        "never missing",
        "a word",
        "an enumeration where a text was",
        "a description",
        "a type",
    ],
)
def test_an_addition_passes(change: Change) -> None:
    """New keys, words and descriptions break nobody, nor does a list of the words that a text can be."""
    assert breaking_changes(STATUS, changed(change)) == []


def test_a_breaking_change_needs_another_version() -> None:
    """The generator writes no file that breaks readers of the same version, and one of the next."""
    stored = checked_text(OutputSchema(name="x", printed_by=("x",), kind=list[int]), None)
    other = OutputSchema(name="x", printed_by=("x",), kind=list[str])
    with pytest.raises(BreakingChangeError, match="each part of the document has another type"):
        checked_text(other, stored)
    second = OutputSchema(name="x", printed_by=("x",), kind=list[str], version=2)
    assert '"urn:appliance:json:x:2"' in checked_text(second, stored)

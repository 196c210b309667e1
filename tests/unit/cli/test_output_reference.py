"""Schemas of the output: current, stable, and true of every pinned output."""

import argparse
import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.argument_parser import build_parser
from appliance.cli.grammar import VERBS
from appliance.cli.output_reference import (
    OUTPUTS,
    BreakingChangeError,
    OutputSchema,
    breaking_changes,
    checked_text,
    page,
)
from appliance.settings.loader import as_table, load_settings
from appliance.wire.json_schemas import Schema
from tests.fakes.schema_validator import closed, violations

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs/reference"
PINS = sorted((ROOT / "tests/pins/stored").glob("cli*/*.txt"))
COMMAND = re.compile(r"^\$ appliance (.*)$", re.MULTILINE)
BY_NAME = {output.name: output for output in OUTPUTS}
ELSEWHERE = {"completion": "a script"}
"""Verbs without ``--json``."""
PLACEHOLDERS = {'"<of this machine>"': "0", '"<as systemd runs here>"': "false"}
"""Values that the pins leave out, by what stands for them, with values of their type."""


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.name)
def test_a_stored_schema_is_only_added_to(output: Any) -> None:
    """The stored schema's readers can read what is printed now; after an addition it is renewed."""
    stored = (REFERENCE / "json" / output.file).read_text("utf-8")
    assert checked_text(output, stored) == stored, "run: python -m appliance.cli.output_reference"


def test_the_page_and_the_set_of_files_are_current() -> None:
    """Each schema has its file, and the page has each schema."""
    assert sorted(p.name for p in (REFERENCE / "json").iterdir()) == sorted(o.file for o in OUTPUTS)
    assert (REFERENCE / "json-output.md").read_text("utf-8") == page(), (
        "run: python -m appliance.cli.output_reference"
    )


def test_each_verb_has_a_schema() -> None:
    """No verb of the grammar is left out, and no schema names a verb that there is not."""
    named = {words.split()[0] for output in OUTPUTS for words in output.printed_by} - {"any"}
    assert named | ELSEWHERE.keys() == {verb.name for verb in VERBS}


def test_each_action_of_a_verb_has_a_schema() -> None:
    """A schema is that of a verb whatever its action, or names each action that it is of."""
    printed_by = {words for output in OUTPUTS for words in output.printed_by}
    parsers = verb_parsers()
    assert {"config", "profile", "baseline"} <= parsers.keys()
    for verb, parser in parsers.items():
        actions = next((one.choices for one in parser._actions if one.dest == "action"), None)
        if verb not in ELSEWHERE and verb not in printed_by:
            told = {words.split()[1] for words in printed_by if words.startswith(f"{verb} ")}
            assert set(actions or {"NAME"}) <= told, verb


def verb_parsers() -> Mapping[str, argparse.ArgumentParser]:
    """Return the parser of each verb."""
    actions = build_parser()._actions
    (verbs,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    return {verb.name: verbs.choices[verb.name] for verb in VERBS}


def test_settings_in_force_are_as_their_schema_says(tmp_path: Path) -> None:
    """Every key is described, with sizes as text, paths, and tables in lists."""
    file = tmp_path / "appliance.toml"
    file.write_text(
        '[memory]\nmargin = "1GiB"\n[[watch]]\nname = "nas"\nurl = "http://192.0.2.7/live"\n',
        "utf-8",
    )
    schema = closed(BY_NAME["settings"].schema())
    table = as_table(load_settings(file, env={}))
    assert table["memory"]["margin"] == "1GiB"
    assert violations(table, schema) == []
    assert violations({**table, "status_port": "8011"}, schema)


@pytest.mark.parametrize("message", ["ready", [104, 105, 7], ["one", "two"], None])
def test_lines_of_the_journal_are_as_their_schema_says(message: object) -> None:
    """Text, bytes, a repeated field, and one that is too long, as journalctl prints them."""
    line = {
        "MESSAGE": message,
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "python3",
        "_SYSTEMD_UNIT": "appliance-supervisor.service",
        "__REALTIME_TIMESTAMP": "1795256172000000",
        "APPLIANCE_PROFILE": "genesis",
    }
    schema = BY_NAME["logs"].schema()
    assert violations(line, schema) == []
    assert violations({**line, "PRIORITY": 6}, schema)


def test_every_key_of_the_status_is_described_or_plain() -> None:
    """Objects have descriptions; times, sizes and durations have their unit in the name."""
    schema = BY_NAME["status"].schema()
    for name, definition in schema["$defs"].items():
        assert definition["description"], name
        for key, value in definition["properties"].items():
            if value.get("type") == "number":
                assert "description" in value or re.search(r"_(s|ms)$|^p\d+$", key), (name, key)


class Printed:
    """Output of one pinned command."""

    def __init__(self, words: str, lines: list[str]) -> None:
        self.words = words
        self.lines = lines

    def documents(self) -> list[Any]:
        """Return the document that the command printed, or those of all its lines."""
        text = "\n".join(self.lines)
        for placeholder, value in PLACEHOLDERS.items():
            text = text.replace(placeholder, value)
        try:
            return [json.loads(text)]
        except json.JSONDecodeError:
            return [json.loads(line) for line in text.splitlines()]


@cache
def printed() -> list[Printed]:
    """Return every pinned output of a command with --json, where there is one."""
    return [one for path in PINS for one in _printed_in(path.read_text("utf-8"))]


def _printed_in(text: str) -> Iterator[Printed]:
    for block in re.split(r"(?=^\$ )", text, flags=re.MULTILINE):
        command = COMMAND.match(block)
        if command is None or "--json" not in command[1].split():
            continue
        lines = [line[2:] for line in block.splitlines()[1:] if line.startswith("  ")]
        if lines:
            yield Printed(command[1], lines)


FORMS = (
    (r"status [^-]", "status-profile"),
    (r"status", "status"),
    (r"show .*--(unit|config)", "file"),
    (r"show .*--baseline|baseline show", "baseline"),
    (r"baseline", "baseline-change"),
    (r"history .*--raw", "probes"),
    (r"wait( [^-]|.* --for)", "status"),
    (r"switch|start|stop|restart|hold|cancel|wait", "operation"),
    (r"mark|key|token", "result"),
    (r"apply|edit", "apply"),
    (r"ls|list", "list"),
    (r"profile import", "profile-import"),
    (r"profile lint", "profile-lint"),
    (r"profile validate", "profile-validate"),
    (r"profile render", "profile-render"),
    (r"config (path|validate)", "config"),
    (r"config show", "settings"),
    (r"(show|history|probe|events|alerts|window|target|version|bench)\b", ""),
)
"""Schemas by the beginning of the command line without --json, the first that matches; empty: of the same name."""


def schema_name(words: str) -> str | None:
    """Return the schema of a command line; None: its form is not one of ours."""
    line = " ".join(word for word in words.split() if word != "--json")
    found = next(
        ((re.match(form, line), name) for form, name in FORMS if re.match(form, line)), None
    )
    return None if found is None else found[1] or line.split()[0]


def test_every_pinned_output_is_as_its_schema_says() -> None:
    """Each document and line that a pin has is valid, and is no error unless the command failed."""
    faults, checked = [], set()
    for one in printed():
        name = schema_name(one.words)
        for document in one.documents() if name is not None else ():
            is_error = isinstance(document, dict) and document.get("event") == "error"
            schema = BY_NAME["error" if is_error else str(name)].schema()
            faults += [f"{one.words}: {fault}" for fault in violations(document, schema)]
            checked.add("error" if is_error else name)
    assert not faults, "\n".join(faults[:20])
    assert checked >= {"status", "status-profile", "list", "show", "operation", "result", "error"}
    assert checked >= {"apply", "version", "config", "profile-validate", "file", "baseline"}


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

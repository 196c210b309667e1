"""Thirty configurations as people publish them, written by us: what their import keeps, and that it holds.

The facts are those of public repositories (llama-swap's, compose files, scripts and units, read in November
2026); names, paths and texts are ours.
"""

from collections import Counter
from pathlib import Path

import pytest

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Engine
from appliance.engines.shared.invocation import InvocationContext
from appliance.profiles.foreign.option_reading import CommandLineStyle, read_options
from appliance.profiles.foreign.profile_draft import EXTRA_ARGS, HostFacts
from appliance.profiles.foreign.server_command import Argument, DispositionKind
from appliance.system.profile_files.drafts import checked_file, ledger_line
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.imports import HOST, imported, is_counted

FILES = sorted((Path(__file__).parent / "configurations").iterdir())
LEAST_KEPT = 0.95
LEAST_ROUND_TRIPS = 100
OTHERWISE = {
    "[llama-server] cpus": "a mask",
    "[llama-server] gpu_layers": "99 is all",
    "[llama-server] load_mode": "one option for several",
    "[speculative] gpu_layers": "99 is all",
    "[speculative] tokens": "a part of one table",
    "[speculative] method": "a part of one table",
    "[speculative] model": "a part of one table",
    "[vllm] chunked_prefill": "a switch",
    "ctx": "8k is 8000",
    "gpus": "variables of the unit",
    "model": "a position",
    "port": "the last option",
    "served": "several words",
    "thinking": "another option",
}
"""Keys that are rendered in another form than the one that public configurations use."""


def test_there_are_thirty_configurations() -> None:
    """Every kind of source is among thirty files."""
    assert len(FILES) == 30
    assert {file.suffix for file in FILES} == {".ini", ".service", ".sh", ".txt", ".yaml", ".yml"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_result_is_a_valid_profile(file: Path) -> None:
    """A published configuration gives at least one profile, each valid, and nothing is refused."""
    found = imported(file.read_text(), file.name)
    assert found.drafts
    assert not found.refusals
    for draft in found.drafts:
        checked = checked_file(draft)
        assert not checked.faults, (checked.text, checked.faults)
        assert parse_profile(draft.name, checked.text.encode()).name == draft.name


def test_nearly_all_options_are_kept_and_the_rest_have_reasons() -> None:
    """At least 95 of 100 options and variables are carried or do their work in another form."""
    outcomes: Counter[DispositionKind] = Counter()
    for file in FILES:
        for draft in imported(file.read_text(), file.name).drafts:
            for disposition in filter(is_counted, checked_file(draft).draft.dispositions):
                outcomes[disposition.outcome] += 1
                told = disposition.outcome is DispositionKind.CARRIED or disposition.reason
                assert told, ledger_line(disposition)
    kept = outcomes.total() - outcomes[DispositionKind.DROPPED]
    assert outcomes.total() > 400
    assert kept / outcomes.total() >= LEAST_KEPT, outcomes


def test_what_is_carried_reaches_the_engine_with_the_same_value() -> None:
    """The engine of an imported profile is started with the options that the source had."""
    trips = 0
    for file in FILES:
        host: HostFacts = HOST
        for draft in imported(file.read_text(), file.name).drafts:
            host = host.with_profile(draft)
            profile = parse_profile(draft.name, checked_file(draft).text.encode())
            engine = ENGINES[profile.engine]
            if engine.arguments is None:
                continue
            argv = engine.invocation(profile, InvocationContext()).argv
            words = [Argument(text=word) for word in argv]
            _, options = read_options(words, CommandLineStyle(joins_values=True))
            rendered = Counter(
                (_key(engine, o.name), value.text) for o in options for value in o.values
            )
            for disposition in draft.of(DispositionKind.CARRIED):
                key = disposition.key or ""
                value = disposition.text.replace("=", " ").rpartition(" ")[2]
                is_plain = (
                    key and key not in OTHERWISE and not key.startswith((EXTRA_ARGS, "[env]"))
                )
                if is_plain and " " in disposition.text and key.partition(" ")[0] != "[unit]":
                    trips += 1
                    texts = {text for k, text in rendered if k == key}
                    assert any(is_same(value, text) for text in texts), (file.name, disposition)
            for argument in draft.extra_args:
                place = argv.index(argument.words[0])
                assert argv[place : place + len(argument.words)] == argument.words
    assert trips >= LEAST_ROUND_TRIPS


def is_same(value: str, text: str) -> bool:
    """Tell whether an option's value is in a text, or is the same number."""
    try:
        return float(value) == float(text)
    except ValueError:
        return value in text


def _key(engine: Engine, name: str) -> str:
    """Return the key of an option as dispositions name it."""
    typed = engine.option_table.named(name)
    return "" if typed is None else place_of(typed.key)


def place_of(path: str) -> str:
    """Return ``[vllm] dtype`` of ``vllm.dtype``; the two sides of a cache are one key."""
    table, _, key = path.removesuffix(".k").removesuffix(".v").rpartition(".")
    return f"[{table}] {key}" if table else key

"""The sentences about quality."""

from dataclasses import replace

from appliance.model.profile import Abilities
from appliance.speed.quality.pass_rate import PassRate
from appliance.speed.quality.quality_message import (
    fault_hint,
    group_subject,
    lost_text,
    recovered_text,
    refused_text,
)
from appliance.speed.quality.standard_canaries import standard_canaries
from tests.fakes.profiles import applied


def test_own_canary() -> None:
    """A canary of the operator's is told by its name."""
    state = PassRate(group="own:capital", runs="1" * 90 + "0" * 6, fault="no JSON")
    text = lost_text("genesis", state)
    assert text.startswith("6 of the last 24 answers to canary capital failed (no JSON)")


def test_subject() -> None:
    """The groups of the standard canaries have names for people."""
    assert group_subject("schema") == "answers by a JSON schema"
    assert recovered_text("tools", 60.0) == "tool calls pass again, after 1 h"


def test_refused_file() -> None:
    """A problem of a canary file is told with the file's path."""
    text = refused_text("a", "/etc/appliance/canaries", "line 2: no JSON object")
    assert text == "/etc/appliance/canaries/a.jsonl: line 2: no JSON object"


def test_a_fault_names_its_trap() -> None:
    """A reasoning parser without thinking spoils schemas and required tools, and no other canary."""
    silent = replace(
        applied("a"), command=("vllm", "--reasoning-parser"), abilities=Abilities(reasoning=False)
    )
    hinted = {c.name for c in standard_canaries(0, tools=True) if fault_hint(silent, c)}
    plain = {c.name for c in standard_canaries(0, tools=True)} - hinted
    assert any("required" in name for name in hinted)
    assert any("auto" in name for name in plain)
    assert all("auto" not in name for name in hinted)
    thinking = replace(silent, abilities=Abilities(reasoning=True))
    assert not any(fault_hint(thinking, c) for c in standard_canaries(0, tools=True))

"""The sentences about quality."""

from appliance.planning.quality.pass_rate import PassRate
from appliance.planning.quality.quality_message import (
    group_subject,
    lost_text,
    recovered_text,
    refused_text,
)


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

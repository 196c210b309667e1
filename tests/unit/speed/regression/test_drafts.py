"""Check that speculative decoding drafts."""

from dataclasses import replace

import pytest

from appliance.model.measurements import RawTimings
from appliance.speed.regression.drafts import DraftsWatch
from tests.fakes.probe_rows import probe

RAW = probe(0.0).raw
assert RAW is not None
DRAFTING = replace(RAW, drafted_tokens=300, accepted_tokens=180)
SILENT = replace(RAW, drafted_tokens=0, accepted_tokens=0)
REFUSED = replace(RAW, drafted_tokens=300, accepted_tokens=0)
NOT_TOLD = replace(RAW, drafted_tokens=None)


def told(*probes: RawTimings) -> list[str | None]:
    watch, facts = DraftsWatch(), []
    for raw in probes:
        watch, fact = watch.after(raw)
        facts.append(fact)
    return facts


@pytest.mark.parametrize(
    ("raw", "fact"), [(SILENT, "it drafted nothing"), (REFUSED, "none of its drafts stood")]
)
def test_second_silent_probe_is_told_once(raw: RawTimings, fact: str) -> None:
    """Two probes without a draft that stands are told, further ones are not."""
    assert told(raw, raw, raw, raw) == [None, fact, None, None]


def test_draft_between_begins_anew() -> None:
    """A probe that drafts ends the count; an engine that does not tell changes nothing."""
    assert told(SILENT, DRAFTING, SILENT, NOT_TOLD, SILENT)[-1] == "it drafted nothing"
    assert told(SILENT, DRAFTING, SILENT, NOT_TOLD) == [None] * 4

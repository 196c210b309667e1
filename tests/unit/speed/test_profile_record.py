"""Record of a profile: probes, real traffic, drafts."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from appliance.model.measurements import (
    EventKind,
    ForeignHolder,
    MeasurementEvent,
    RawTimings,
    TrafficSums,
)
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.detector_state import DetectorPhase
from appliance.speed.profile_record import DraftsWatch, ProfileRecord
from tests.fakes.probe_rows import EVIDENCE, probe
from tests.fakes.probed_box import BEGIN_S, ProbedBox, measured

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


PYTHON = ForeignHolder(pid=4121, name="python3", held_bytes=9 << 30)
HELD = replace(EVIDENCE, foreign_holders=(PYTHON,))


def kinds(events: Sequence[MeasurementEvent]) -> list[tuple[EventKind, Series | None]]:
    return [(event.kind, event.series) for event in events]


def both(kind: EventKind) -> list[tuple[EventKind, Series | None]]:
    return [(kind, Series.DECODE), (kind, Series.PREFILL)]


def restored(record: ProfileRecord, saved: dict[str, str]) -> ProfileRecord:
    """The record as an agent that begins anew has it, from what it has stored."""
    saved.update({key: text for (_, key), text in record.unsaved().items()})
    found = ProfileRecord.restored("genesis", saved)
    assert found.faults == []
    return found


def test_first_baseline_is_told_when_it_is_found() -> None:
    """A new profile learns its baseline by itself, of which there is one event a series."""
    box = ProbedBox.healthy(6)
    assert sorted(kinds(box.events)) == both(EventKind.ACCEPTED)
    event = box.events[0]
    assert event.rate == pytest.approx(80.0 if event.series is Series.DECODE else 2000.0, rel=0.01)
    assert "first baseline" in event.text


def test_loss_is_told_with_its_size_beginning_and_cause() -> None:
    """A third less speed beside another process on the GPU is one event a series, and so is its end."""
    box = ProbedBox.healthy()
    began_s, box.speed, box.evidence = box.now_s, 0.66, HELD
    lost = box.run(3)
    assert sorted(kinds(lost)) == both(EventKind.REGRESSION)
    for event in lost:
        assert event.change == pytest.approx(-0.34, abs=0.02)
        assert event.cause == "foreign-holder"
        assert event.rate == pytest.approx((event.baseline or 0) * 0.66, rel=0.02)
        assert 0 <= (event.since_unix_s or 0) - began_s <= 900
        assert "python3 (pid 4121)" in event.text
        assert event.unix_s - began_s < 3600
    speed = box.record.speeds()[0]
    assert (speed.phase, speed.cause) == ("regressed", "foreign-holder")
    assert speed.change == pytest.approx(-0.34, abs=0.02)
    assert speed.since_unix_s == lost[0].since_unix_s
    box.speed, box.evidence = 1.0, EVIDENCE
    found = box.run(3)
    assert sorted(kinds(found)) == both(EventKind.RECOVERED)
    assert found[0].since_unix_s == lost[0].since_unix_s
    assert box.record.speeds()[0].cause is None


def test_cause_that_nothing_speaks_for_is_unknown() -> None:
    """A loss with the evidence of healthy times has no cause."""
    box = ProbedBox.healthy()
    box.speed = 0.66
    lost = box.run(3)
    assert [event.cause for event in lost] == [None, None]
    assert all("likely: unknown" in event.text for event in lost)


def test_single_slow_probes_tell_nothing() -> None:
    """One probe in three hours at a third of the speed leaves everything as it is."""
    box = ProbedBox.healthy()
    for _ in range(8):
        assert box.run(3) == []
        box.speed = 0.33
        assert box.probe() == []
        box.speed = 1.0


def test_earlier_slow_probe_belongs_to_no_later_loss() -> None:
    """A probe that was slow beside other load gives a loss hours later neither beginning nor cause."""
    box = ProbedBox.healthy()
    box.speed, box.evidence = 0.5, HELD
    box.probe()
    box.speed, box.evidence = 1.0, EVIDENCE
    box.run(3)
    began_s, box.speed = box.now_s, 0.66
    lost = box.run(3)
    assert sorted(kinds(lost)) == both(EventKind.REGRESSION)
    assert {event.cause for event in lost} == {None}
    assert all((event.since_unix_s or 0) >= began_s for event in lost)


def test_restoration_at_any_time_changes_no_event() -> None:
    """A record that is stored and restored before every probe tells the same as one that is not."""
    told = []
    for is_restored in (False, True):
        box, saved = ProbedBox(), dict[str, str]()
        box.start()
        for speed, hours in ((1.0, 6), (0.7, 2), (1.0, 2)):
            box.speed = speed
            for _ in range(4 * hours):
                if is_restored:
                    box.record = restored(box.record, saved)
                box.run(0.25)
        told.append(box.events)
    assert told[0] == told[1]
    assert [event.kind for event in told[0]].count(EventKind.REGRESSION) == 2


def test_states_stay_small() -> None:
    """States of a profile in doubt are a few kB, and only those that have changed are stored."""
    box = ProbedBox.healthy()
    box.speed = 0.8
    box.run(0.5)
    states = box.record.unsaved()
    assert max(map(len, states.values())) < 2500
    assert box.record.unsaved() == {}


@pytest.mark.parametrize("text", ["", "[]", '{"restart": 1, "drafts": 1}', "[" * 100_000])
def test_damaged_states_are_begun_anew(text: str) -> None:
    """States that cannot be read are told, and cost the baseline of their series alone."""
    box = ProbedBox.healthy(6)
    saved: dict[str, str] = {key: value for (_, key), value in box.record.unsaved().items()}
    for key in ("decode", "decode-record"):
        found = ProfileRecord.restored("genesis", {**saved, key: text})
        assert len(found.faults) == 1
        assert found.series[Series.DECODE].phase is DetectorPhase.UNSET
        assert found.series[Series.PREFILL].phase is DetectorPhase.HEALTHY
    found = ProfileRecord.restored("genesis", {**saved, "profile": text})
    assert len(found.faults) == 1
    assert found.series[Series.DECODE].phase is DetectorPhase.HEALTHY


@pytest.mark.parametrize(
    ("speed", "expected"), [(83.0 / 80.3, 83.0 / 80.3 - 1), (80.3 / 83.0, 80.3 / 83.0 - 1)]
)
def test_restart_that_comes_back_off_is_told_as_such(speed: float, expected: float) -> None:
    """A session 3 % beside the one before is told once a series, and is no loss."""
    box = ProbedBox.healthy()
    box.speed = speed
    box.start()
    found = box.run(24)
    assert sorted(kinds(found)) == both(EventKind.LEVEL_AFTER_RESTART)
    assert found[0].change == pytest.approx(expected, abs=0.006)
    assert (found[0].rate or 0) / (found[0].baseline or 1) - 1 == pytest.approx(found[0].change)
    assert found[0].cause == "restart"


def test_restart_that_comes_back_like_before_tells_nothing() -> None:
    """A restart alone is no news."""
    box = ProbedBox.healthy()
    for _ in range(3):
        box.start()
        assert box.run(12) == []


def test_loss_since_a_restart_names_it() -> None:
    """A session that comes back 6 % slower is a loss whose likely cause is the restart."""
    box = ProbedBox.healthy()
    box.speed = 0.94
    box.start()
    found = box.run(6)
    assert sorted(kinds(found)) == both(EventKind.REGRESSION)
    assert {event.cause for event in found} == {"restart"}


def test_new_driver_shortens_the_wait() -> None:
    """A loss that comes with another driver is told sooner, and names it."""
    waited = []
    for evidence in (EVIDENCE, replace(EVIDENCE, driver="560.35.03")):
        box = ProbedBox.healthy()
        began_s, box.speed, box.evidence = box.now_s, 0.8, evidence
        waited.append(box.run(3)[0].unix_s - began_s)
    assert waited[1] < waited[0]


def test_silent_drafts_are_told_once() -> None:
    """A profile that declares speculative decoding and drafts nothing is told, another is not."""
    box = ProbedBox.healthy(6, speculative=True, drafted=300, tokens_per_step=2.0)
    assert EventKind.DRAFTS_SILENT not in {event.kind for event in box.events}
    assert box.record.speeds()[0].tokens_per_step == pytest.approx(2.0)
    assert box.record.series[Series.DECODE].baseline_tok_s == pytest.approx(160, rel=0.01)
    box.drafted, box.tokens_per_step = 0, 1.0
    found = [event for event in box.run(6) if event.kind is EventKind.DRAFTS_SILENT]
    assert len(found) == 1
    assert "it drafted nothing" in found[0].text
    plain = ProbedBox.healthy(6, drafted=0)
    assert EventKind.DRAFTS_SILENT not in {event.kind for event in plain.events}


def test_accept_takes_the_present_level() -> None:
    """An accept says what it changes, and the new level is the baseline once it is learned."""
    box = ProbedBox.healthy()
    box.speed = 0.5
    box.run(3)
    row = box.record.baseline().series[0]
    assert row.change == pytest.approx(-0.5, abs=0.01)
    assert len(row.prompts) == 5
    found = box.record.accept(box.minute, box.now_s, "ana")
    assert kinds(found) == both(EventKind.ACCEPTED)
    assert "ana accepted" in found[0].text
    assert re.search(r": (79|80)\.\d → (39|40)\.\d tok/s, −(49|50) %$", found[0].text)  # noqa: RUF001
    assert box.run(24) == []
    assert box.record.series[Series.DECODE].baseline_tok_s == pytest.approx(40, rel=0.01)
    assert box.record.baseline().series[0].accepted_unix_s == found[0].unix_s


def test_reset_learns_anew() -> None:
    """After a reset nothing is known, and a first baseline is found again."""
    box = ProbedBox.healthy()
    found = box.record.reset(box.minute, box.now_s, "ana")
    assert kinds(found) == both(EventKind.BASELINE_RESET)
    row = box.record.baseline().series[0]
    assert (row.baseline, row.present, row.band, row.prompts) == (None, None, None, ())
    assert sorted(kinds(box.run(6))) == both(EventKind.ACCEPTED)


def test_accept_before_the_first_baseline_tells_no_figures() -> None:
    """Where nothing is measured yet, an accept begins to learn."""
    record = ProfileRecord.restored("genesis", {})
    found = record.accept(BEGIN_S / 60, BEGIN_S, "ana")
    assert (found[0].change, found[0].rate) == (None, None)
    assert record.series[Series.DECODE].phase is DetectorPhase.LEARNING


@pytest.mark.parametrize(
    ("started_s", "pid", "is_new"),
    [
        (BEGIN_S, 100, False),
        (BEGIN_S + 30, 100, False),
        (BEGIN_S + 3600, 100, True),
        (BEGIN_S, 101, True),
        (BEGIN_S, None, False),
        (None, 100, False),
    ],
)
def test_start_is_told_from_its_process_and_time(
    started_s: float | None, pid: int | None, *, is_new: bool
) -> None:
    """Another process or another time is a start; a clock that moved a little is none."""
    record = ProfileRecord.restored("genesis", {})
    assert record.is_new_start(None, None)
    record.start(BEGIN_S / 60, BEGIN_S, 100)
    assert record.is_new_start(started_s, pid) is is_new


def test_probe_without_a_measurement_is_no_reading() -> None:
    """Probes that yield change no level, and those right after a start are left out."""
    box = ProbedBox.healthy()
    rates = box.record.speeds()[0].rates
    box.outcome, box.speed = ProbeOutcome.YIELDED, 0.1
    assert box.run(1) == []
    box.outcome = ProbeOutcome.VALID
    box.start()
    assert box.probe() == []
    assert box.record.speeds()[0].rates == rates
    valid_s = box.record.memory.last_valid_unix_s
    assert valid_s == box.now_s


def test_slow_traffic_asks_for_a_probe_and_tells_nothing() -> None:
    """Traffic that is slower than usual asks; while a loss is known it does not."""
    box = ProbedBox.healthy()

    def traffic(tok_s: float) -> bool:
        sums = TrafficSums(unix_s=box.now_s, output_tokens=600, decode_s=600 / tok_s)
        return box.record.take_traffic(sums)

    assert not any(traffic(78.0) for _ in range(10))
    assert traffic(50.0)
    box.speed = 0.6
    box.run(2)
    assert not traffic(50.0)


def test_prefix_cache_that_is_lost_is_named_in_a_loss() -> None:
    """A loss while real prompts are no longer cached says so."""
    box = ProbedBox.healthy()
    for cached in (*[3500] * 20, *[50] * 5):
        sums = TrafficSums(unix_s=box.now_s, prompt_tokens=5000, cached_tokens=cached)
        box.record.take_traffic(sums)
    box.speed = 0.8
    assert {event.cause for event in box.run(2)} == {"prefix-cache"}


def test_wishes_of_both_series_are_served_together() -> None:
    """One probe of both is wished for where both want one, else one of that series."""
    box = ProbedBox()
    box.start()
    wish = box.record.wish()
    assert wish is not None
    assert wish[1] is None
    box.run(6)
    assert box.record.wish() is None
    slow = measured("lru-cache", box.now_s + 900, speed=0.6)
    box.record.take(slow, box.minute + 15, speculative=False)
    wish = box.record.wish()
    assert wish is not None
    assert wish[1] is Series.DECODE


def test_sizes_are_chosen_once_both_rates_are_known() -> None:
    """Without rates sizes are small and not kept; an accept lets them be chosen anew."""
    record = ProfileRecord.restored("genesis", {})
    assert record.choose_sizes(900, {Series.DECODE: 80.0}, None).long_tokens == 128
    assert record.memory.sizes is None
    rates = {Series.DECODE: 80.0, Series.PREFILL: 2000.0}
    sizes = record.choose_sizes(900, rates, 64)
    assert sizes.long_prompt == "prefill-1024/p64"
    assert record.choose_sizes(900, {}, None) == sizes
    assert restored(record, {}).memory.sizes == sizes
    assert record.answer_tokens(900, sizes) == sizes.answer_tokens
    record.accept(BEGIN_S / 60, BEGIN_S, "ana")
    assert record.memory.sizes is None


def test_far_slower_profile_gets_short_answers_and_no_long_prompt() -> None:
    """At a tenth of the speed prefill has no wishes, and answers are cut."""
    box = ProbedBox.healthy()
    sizes = box.record.choose_sizes(900, {Series.DECODE: 80.0, Series.PREFILL: 2000.0}, None)
    box.speed = 0.1
    box.probe()
    assert box.record.is_much_slower
    assert box.record.answer_tokens(900, sizes) == 16
    wish = box.record.wish()
    assert wish is not None
    assert wish[1] is Series.DECODE


def test_long_prompt_shrinks_only_before_its_baseline() -> None:
    """A prompt that the engine fails at becomes shorter while its baseline is not learned yet."""
    box = ProbedBox()
    box.start()
    box.record.choose_sizes(900, {Series.DECODE: 80.0, Series.PREFILL: 2000.0}, None)
    failed = replace(measured("prefill-1024", box.now_s), outcome=ProbeOutcome.FAILED, raw=None)

    def tokens_after_failures() -> int:
        for _ in range(2):
            box.record.take(failed, box.minute, speculative=False)
        assert box.record.memory.sizes is not None
        return box.record.memory.sizes.long_tokens

    assert tokens_after_failures() == 512
    box.run(6)
    assert tokens_after_failures() == 512


def test_silence_is_kept() -> None:
    """Length and telling of a silence are the same after a restoration."""
    record = ProfileRecord.restored("genesis", {})
    record.note_silence(7200.04, told=True)
    memory = restored(record, {}).memory
    assert (memory.silent_s, memory.silence_told) == (7200.0, True)


def test_report_of_a_new_profile_is_empty() -> None:
    """Before the first probe a series has no rate, no baseline and no change."""
    speed = ProfileRecord.restored("genesis", {}).speeds()[0]
    assert (speed.phase, speed.rate, speed.baseline, speed.change) == ("unset", None, None, None)

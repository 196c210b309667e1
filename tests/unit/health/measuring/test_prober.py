"""Prober of the health agent, on engines that answer in virtual time."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from appliance.health.measuring.evidence import EvidenceReader
from appliance.health.measuring.prober import Prober
from appliance.model.errors import LaneBusyError
from appliance.model.measurements import (
    Probe,
    ProbeKind,
    TimingSource,
    decode_tok_s,
    prefill_tok_s,
)
from appliance.model.profile import Applied, WarmUp
from appliance.model.words import ProbeOutcome
from appliance.speed.probe_prompts import MOST_PIECE_S
from appliance.speed.probe_sizes import ProbeCourse, ProbeStep
from appliance.system.kernel.usage import CpuCounters
from appliance.wire.health_socket import ProbeProgressEvent
from appliance.wire.lane import LaneOutcome
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.probe_lane import FakeProbeLane, LaneAnswer, LaneRequest
from tests.fakes.probed_engine import LlamaCppModel, VllmModel, event_stream, prompt_of, text_event
from tests.fakes.profiles import applied
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

LLAMA = replace(applied("alpha", warm_up=WarmUp.CHAT), engine="llama-server")
VLLM = replace(LLAMA, engine="vllm")
COURSE = ProbeCourse(
    kind=ProbeKind.SCHEDULED,
    prompts=("lru-cache", "prefill-512/p32"),
    output_tokens=32,
    started_unix_s=7.0,
)
WARM_UP = replace(COURSE, kind=ProbeKind.WARM_UP, prompts=("lru-cache",))
Answer = Callable[[LaneRequest], LaneAnswer]


class Rig:
    """Prober on a lane whose engine answers as a test says."""

    def __init__(self, answer: Answer, profile: Applied = LLAMA) -> None:
        self.clock = VirtualHealthClock()
        self.lane = FakeProbeLane(answer)
        self.profile = profile
        evidence = EvidenceReader(self._no_gpus, self.clock, read_cpu=lambda _: self.cpu())
        self.prober = Prober(
            self.lane, evidence, self.clock, module_version=lambda module: f"{module} 1"
        )
        self.steps: list[ProbeProgressEvent] = []

    async def _no_gpus(self) -> Mapping[str, object] | None:
        raise AssertionError("a profile without GPUs needs none of them")

    def cpu(self) -> CpuCounters:
        """Four CPUs, of which the unit uses one and others half of one."""
        now_s = self.clock.monotonic_s()
        return CpuCounters(all_s=4 * now_s, busy_s=1.5 * now_s, unit_s=now_s)

    async def probe(self, course: ProbeCourse = COURSE) -> Sequence[Probe]:
        return await self.prober.probe(self.profile, course, on_progress=self.steps.append)

    @property
    def prompts(self) -> list[str]:
        """Prompts that were asked."""
        return [prompt_of(r.body) for r in self.lane.requests if r.body is not None]


def outcomes(probes: Sequence[Probe]) -> list[ProbeOutcome]:
    return [probe.outcome for probe in probes]


async def test_a_probe_measures_both_series() -> None:
    """The rates of the engine are found, however many pieces its prompts are sent in."""
    rig = Rig(LlamaCppModel().answer)
    task, long = await rig.probe()
    assert outcomes([task, long]) == [ProbeOutcome.VALID] * 2
    assert task.raw is not None
    assert long.raw is not None
    assert decode_tok_s(task.raw) == pytest.approx(50.0)
    assert long.raw.prompt_tokens == pytest.approx(512 + 512 / 32, rel=0.1)
    assert prefill_tok_s(long.raw) == pytest.approx(1000.0, rel=0.05)
    assert (task.prompt, long.prompt) == COURSE.prompts
    assert (task.profile, task.kind, task.boot_id) == (
        "alpha",
        ProbeKind.SCHEDULED,
        rig.clock.boot_id,
    )
    assert long.began_s > task.began_s
    assert task.began_unix_s - rig.clock.unix_s() == pytest.approx(
        task.began_s - rig.clock.monotonic_s()
    )


async def test_no_piece_takes_long() -> None:
    """After the search of the warm-ups every request before the answer takes 20 ms at most."""
    engine = LlamaCppModel(prefill_tok_s=3000.0)
    rig = Rig(engine.answer)
    await rig.probe(WARM_UP)
    assert rig.prober.piece_tokens(LLAMA) == 32
    engine.evaluated.clear()
    long_prompt = f"prefill-512/p{rig.prober.piece_tokens(LLAMA)}"
    await rig.probe(replace(COURSE, prompts=("lru-cache", long_prompt)))
    longest_s = engine.overhead_s + max(engine.evaluated) / engine.prefill_tok_s
    assert longest_s <= MOST_PIECE_S
    assert len(engine.evaluated) > 8


@pytest.mark.parametrize(
    ("tok_s", "tokens"), [(200_000.0, 2048), (1000.0, 16), (400.0, 8), (50.0, 2)]
)
async def test_the_search_for_the_size_of_pieces(tok_s: float, tokens: int) -> None:
    """A fast engine gets nearly all at once, a slow one the smallest pieces; the search is short."""
    engine = LlamaCppModel(prefill_tok_s=tok_s)
    rig = Rig(engine.answer)
    assert rig.prober.piece_tokens(LLAMA) == 16
    await rig.probe(WARM_UP)
    assert rig.prober.piece_tokens(LLAMA) == tokens
    sent = len(engine.evaluated)
    await rig.probe(replace(WARM_UP, prompts=()))
    assert len(engine.evaluated) - sent <= 8


async def test_a_search_on_a_busy_box_does_not_count() -> None:
    """The second warm-up searches again, and the larger size stays, whichever search found it."""
    engine = LlamaCppModel(prefill_tok_s=400.0)
    rig = Rig(engine.answer)
    for tok_s, tokens in ((400.0, 8), (3000.0, 32), (100.0, 32)):
        engine.prefill_tok_s = tok_s
        await rig.probe(WARM_UP)
        assert rig.prober.piece_tokens(LLAMA) == tokens
    await rig.probe(replace(WARM_UP, started_unix_s=8.0))
    assert rig.prober.piece_tokens(LLAMA) == 2


async def test_a_search_that_is_interrupted_keeps_what_it_found() -> None:
    """A client's request in the middle of the search ends it with the size that was reached."""
    engine = LlamaCppModel(prefill_tok_s=3000.0)

    def answer(request: LaneRequest) -> LaneAnswer:
        if len(engine.evaluated) == 2:
            raise LaneBusyError("a request is in flight")
        return engine.answer(request)

    rig = Rig(answer)
    await rig.probe(replace(WARM_UP, prompts=()))
    assert rig.prober.piece_tokens(LLAMA) == 64


async def test_pieces_go_on_where_the_one_before_ended() -> None:
    """Each request begins with the one before it, and all with a salt of their own probe."""
    rig = Rig(LlamaCppModel().answer)
    await rig.probe(replace(COURSE, prompts=("prefill-128/p32",)))
    await rig.probe(replace(COURSE, prompts=("prefill-128/p32",)))
    half = len(rig.prompts) // 2
    first, second = rig.prompts[:half], rig.prompts[half:]
    for prompts in (first, second):
        assert all(b.startswith(a) for a, b in itertools.pairwise(prompts))
    assert first[0][:8] != second[0][:8]
    reused = [r.body.get("cache_prompt") for r in rig.lane.requests if r.body is not None]
    assert reused == [False, *[True] * (half - 1)] * 2


async def test_a_model_whose_state_cannot_be_cut_gets_its_prompts_in_one() -> None:
    """Two prompts that were begun anew are dropped; then the prompt is asked by another name."""
    rig = Rig(LlamaCppModel(keeps_prefix=False).answer)
    for _ in range(2):
        assert outcomes(await rig.probe()) == [ProbeOutcome.YIELDED]
    assert rig.prober.piece_tokens(LLAMA) is None
    task, long = await rig.probe()
    assert (task.prompt, long.prompt) == ("lru-cache", "prefill-512")
    assert outcomes([task, long]) == [ProbeOutcome.VALID] * 2
    again = replace(COURSE, started_unix_s=8.0)
    assert outcomes(await rig.probe(again)) == [ProbeOutcome.YIELDED]


async def test_another_request_between_two_pieces_is_no_fault_of_the_engine() -> None:
    """A prompt that lost its place once is asked again in pieces."""
    engine = LlamaCppModel()
    lost = False

    def answer(request: LaneRequest) -> LaneAnswer:
        nonlocal lost
        if not lost and len(engine.evaluated) == 2:
            lost, engine.slot = True, "somebody else's"
        return engine.answer(request)

    rig = Rig(answer)
    assert outcomes(await rig.probe()) == [ProbeOutcome.YIELDED]
    assert outcomes(await rig.probe()) == [ProbeOutcome.VALID] * 2
    assert rig.prober.piece_tokens(LLAMA) == 16


async def test_an_engine_without_times_of_its_own_is_asked_in_one() -> None:
    """A build that tells no timings gives up one prompt, and is measured by its stream then."""
    rig = Rig(LlamaCppModel(tells_timings=False).answer)
    (task, long) = await rig.probe()
    assert task.outcome is ProbeOutcome.UNMEASURED
    assert (long.outcome, long.prompt) == (ProbeOutcome.VALID, "prefill-512")
    assert long.raw is not None
    assert long.raw.source is TimingSource.STREAM


@pytest.mark.parametrize("lag", [0, 3])
async def test_metrics_tell_the_times_of_an_engine_without_timings(lag: int) -> None:
    """The page is read until it has the request, and its times go before those of the stream."""
    rig = Rig(VllmModel(lag=lag).answer, VLLM)
    task, long = await rig.probe()
    assert (task.prompt, long.prompt) == ("lru-cache", "prefill-512")
    assert task.raw is not None
    assert task.raw.source is TimingSource.METRICS
    assert decode_tok_s(task.raw) == pytest.approx(50.0)
    assert rig.prober.piece_tokens(VLLM) is None


@pytest.mark.parametrize("engine", [VllmModel(lag=99), VllmModel(others=1)])
async def test_metrics_of_another_request_are_not_taken(engine: VllmModel) -> None:
    """Without the growth of exactly one request the stream is measured."""
    rig = Rig(engine.answer, VLLM)
    (task, _) = await rig.probe()
    assert task.raw is not None
    assert task.raw.source is TimingSource.STREAM
    assert decode_tok_s(task.raw) == pytest.approx(25.0)


async def test_pages_without_the_metrics_are_read_once() -> None:
    """An engine without a page, or with one of other programs, is not asked for it again."""
    for page in (None, b"process_cpu_seconds_total 1.0\n"):
        engine = VllmModel()

        def answer(
            request: LaneRequest, page: bytes | None = page, engine: VllmModel = engine
        ) -> LaneAnswer:
            if request.path == "/metrics":
                return LaneAnswer(pieces=[(0.0, page or b"")], status=404 if page is None else 200)
            return engine.answer(request)

        rig = Rig(answer, VLLM)
        assert outcomes(await rig.probe()) == [ProbeOutcome.VALID] * 2
        read = [r.path for r in rig.lane.requests].count("/metrics")
        assert read == (1 if page is None else 6)
        await rig.probe()
        assert [r.path for r in rig.lane.requests].count("/metrics") == read


async def test_a_page_that_breaks_off_fails_one_probe_only() -> None:
    """An engine that did not answer for its metrics is asked for them again."""
    engine, breaks = VllmModel(), True

    def answer(request: LaneRequest) -> LaneAnswer:
        if request.path == "/metrics" and breaks:
            return LaneAnswer(outcome=LaneOutcome.FAILED, detail="broke off")
        return engine.answer(request)

    rig = Rig(answer, VLLM)
    (probe, _) = await rig.probe()
    assert (probe.outcome, probe.detail) == (ProbeOutcome.FAILED, "broke off")
    breaks = False
    (probe, _) = await rig.probe()
    assert probe.raw is not None
    assert probe.raw.source is TimingSource.METRICS


async def test_a_request_that_arrives_ends_the_probe() -> None:
    """The answer is dropped in the middle, and no further prompt is asked."""
    rig = Rig(LlamaCppModel(decode_tok_s=10.0).answer)
    probing = asyncio.create_task(rig.probe())
    await advance(1.5)
    rig.lane.request_arrives()
    (probe,) = await probing
    assert (probe.outcome, probe.raw) == (ProbeOutcome.YIELDED, None)
    assert probe.detail == "a request arrived"


async def test_a_busy_lane_is_no_probe() -> None:
    """A prompt that is refused at once is busy, one that is refused after a piece has yielded."""
    engine = LlamaCppModel()
    admitted = 0

    def answer(request: LaneRequest) -> LaneAnswer:
        if request.path == "/props":
            return engine.answer(request)
        if len(engine.evaluated) >= admitted:
            raise LaneBusyError("a request is in flight")
        return engine.answer(request)

    rig = Rig(answer)
    (probe,) = await rig.probe()
    assert (probe.outcome, probe.detail) == (ProbeOutcome.BUSY, "a request is in flight")
    admitted = 3
    (probe,) = await rig.probe()
    assert probe.outcome is ProbeOutcome.YIELDED
    assert "a request is in flight" in probe.detail


STREAM = event_stream(*[text_event()] * 32)
SECRET = b'data: {"error": {"message": "secret prompt"}}\n\n'


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (LaneAnswer(pieces=[(0.1, b"{}")], status=500), ProbeOutcome.FAILED),
        (LaneAnswer(pieces=[(0.1, b"secret")], status=404), ProbeOutcome.FAILED),
        (LaneAnswer(pieces=[(0.1, SECRET)]), ProbeOutcome.FAILED),
        (LaneAnswer(pieces=[(0.1, p) for p in STREAM]), ProbeOutcome.UNMEASURED),
        (LaneAnswer(pieces=[(0.1, p) for p in STREAM[:5]]), ProbeOutcome.FAILED),
        (LaneAnswer(pieces=[(0.1, b"\x00\xff" * 50)] * 9), ProbeOutcome.FAILED),
        (LaneAnswer(), ProbeOutcome.FAILED),
        (
            LaneAnswer(pieces=[(0.1, STREAM[0])], outcome=LaneOutcome.FAILED, detail="broke off"),
            ProbeOutcome.FAILED,
        ),
        (
            LaneAnswer(pieces=[(0.1, STREAM[0])], outcome=LaneOutcome.TOO_LONG, detail="4 MiB"),
            ProbeOutcome.TOO_LONG,
        ),
        (LaneAnswer(pieces=[(0.1, b"x" * (1 << 20))] * 5), ProbeOutcome.TOO_LONG),
        (LaneAnswer(pieces=[(9.0, p) for p in STREAM * 9]), ProbeOutcome.TOO_LONG),
    ],
)
async def test_whatever_an_engine_does_is_an_outcome(
    answer: LaneAnswer, outcome: ProbeOutcome
) -> None:
    """Errors, garbage, endless and huge answers measure nothing, and none of their text is kept."""
    engine = VllmModel()
    rig = Rig(lambda r: engine.answer(r) if r.body is None else answer, VLLM)
    probes = await rig.probe()
    assert outcomes(probes) == [outcome] * 2
    assert all(probe.raw is None and probe.detail for probe in probes)
    assert not any("secret" in probe.detail for probe in probes)


async def test_an_answer_that_ends_early_is_told() -> None:
    """An engine that ignores the length measures nothing that counts."""
    engine = VllmModel()

    def answer(request: LaneRequest) -> LaneAnswer:
        if request.body is not None:
            request = replace(request, body={**request.body, "max_tokens": 5})
        return engine.answer(request)

    (probe, _) = await Rig(answer, VLLM).probe()
    assert (probe.outcome, probe.detail) == (ProbeOutcome.ENDED_EARLY, "5 of 32 tokens")


@pytest.mark.parametrize("name", ["step_s", "suspended_s"])
async def test_a_clock_that_moves_spoils_the_probe(name: str) -> None:
    """A suspended box, and a clock that is set, end the probe without a rate that counts."""
    rig = Rig(LlamaCppModel(decode_tok_s=10.0).answer)
    probing = asyncio.create_task(rig.probe())
    await advance(1.5)
    setattr(rig.clock, name, 3600.0)
    (probe,) = await probing
    assert probe.outcome is ProbeOutcome.CLOCK
    assert "suspended" in probe.detail


async def test_the_evidence_has_shares_version_and_fingerprint() -> None:
    """The version is read once a start from the engine's page, or from the package of its module."""
    rig = Rig(LlamaCppModel().answer)
    (task, long) = await rig.probe()
    for probe in (task, long):
        assert probe.evidence.other_cpu_share == pytest.approx(0.125)
        assert probe.evidence.engine_version == "b11549-0ab1c2d"
        assert probe.evidence.fingerprint == LLAMA.fingerprint
    await rig.probe()
    assert [r.path for r in rig.lane.requests].count("/props") == 1
    await rig.probe(replace(COURSE, started_unix_s=8.0))
    assert [r.path for r in rig.lane.requests].count("/props") == 2
    rig = Rig(LlamaCppModel().answer, replace(LLAMA, engine="xllamacpp"))
    (task, _) = await rig.probe()
    assert task.evidence.engine_version == "xllamacpp 1"


async def test_a_version_that_is_not_told_is_looked_for_thrice() -> None:
    """An engine without its page, or a lane that is busy, delays no later probe."""

    def answer(request: LaneRequest) -> LaneAnswer:
        if request.path == "/props":
            raise LaneBusyError("busy")
        return engine.answer(request)

    engine = LlamaCppModel()
    rig = Rig(answer)
    tries = 0
    original = rig.lane.answer

    def counted(request: LaneRequest) -> LaneAnswer:
        nonlocal tries
        tries += request.path == "/props"
        return original(request)

    rig.lane.answer = counted
    for _ in range(5):
        (task, _) = await rig.probe()
        assert task.evidence.engine_version is None
    assert tries == 3


async def test_steps_are_told_to_whoever_waits() -> None:
    """A prompt is read, in pieces, then written, then ended with its rate; no text of it is told."""
    rig = Rig(LlamaCppModel().answer)
    await rig.probe()
    for name in COURSE.prompts:
        steps = [step for step in rig.steps if step.prompt == name]
        states = [step.state for step in steps]
        assert states[0] is ProbeStep.READING
        assert states[-1] is ProbeStep.ENDED
        assert (ProbeStep.WRITING in states) == (name == "lru-cache")
        assert any(step.text.startswith("piece 2 of") for step in steps)
        assert steps[-1].tok_s is not None
        assert all(step.tok_s is None for step in steps[:-1])


async def test_an_embedding_model_is_not_asked() -> None:
    """A profile that generates no text has failed probes, and no request is sent."""
    rig = Rig(LlamaCppModel().answer, replace(VLLM, warm_up=WarmUp.EMBEDDING))
    assert set(outcomes(await rig.probe())) == {ProbeOutcome.FAILED}
    assert rig.prompts == []


async def test_probes_take_turns() -> None:
    """Of two probes at once the second waits for the lane, between none of the first's requests."""
    rig = Rig(LlamaCppModel().answer)
    first, second = await asyncio.gather(rig.probe(), rig.probe())
    assert outcomes([*first, *second]) == [ProbeOutcome.VALID] * 4
    assert second[0].began_s >= first[1].began_s


class CrowdedRig(Rig):
    """Two CPUs, of which others use a share, and an engine with steps as long as a test says."""

    def __init__(self, *, others: float, step_s: float, profile: Applied = LLAMA) -> None:
        self.others, self.step_s = others, step_s
        self.asked_s: list[float] = []
        """Times of the prompts that were sent."""
        self._engine = LlamaCppModel()
        self._others_s = self._looked_s = 0.0
        super().__init__(self._answer, profile)

    def _answer(self, request: LaneRequest) -> LaneAnswer:
        answer = self._engine.answer(request)
        if request.body is None:
            return answer
        self.asked_s.append(self.clock.monotonic_s())
        pieces = [
            (max(gap_s, self.step_s) if gap_s else 0.0, data) for gap_s, data in answer.pieces
        ]
        return replace(answer, pieces=pieces)

    async def _no_gpus(self) -> Mapping[str, object] | None:
        return None

    def cpu(self) -> CpuCounters:
        """Counters of a box in which the unit uses nothing that counts."""
        now_s = self.clock.monotonic_s()
        self._others_s += (now_s - self._looked_s) * 2 * self.others
        self._looked_s = now_s
        return CpuCounters(all_s=2 * now_s, busy_s=self._others_s, cpus=2, unit_s=0.0)


async def test_a_probe_ends_with_the_first_long_step_on_a_busy_box() -> None:
    """Others who make a piece of a prompt long keep the rest of it away, and all until they are gone."""
    rig = CrowdedRig(others=0.5, step_s=0.2)
    (probe,) = await rig.probe()
    assert probe.outcome is ProbeOutcome.CROWDED
    assert probe.detail == "a step of the engine took 200 ms: other programs use 50% of the CPU"
    assert (probe.raw, len(rig.asked_s)) == (None, 1)
    (probe,) = await rig.probe()
    assert (probe.outcome, probe.detail) == (
        ProbeOutcome.CROWDED,
        "other programs use 50% of the CPU",
    )
    assert len(rig.asked_s) == 1
    rig.others, rig.step_s = 0.05, 0.0
    assert outcomes(await rig.probe()) == [ProbeOutcome.VALID] * 2


async def test_a_crowd_that_comes_ends_an_answer_within_a_second() -> None:
    """An answer is given up like a prompt: each of its tokens is a step of the engine."""
    rig = CrowdedRig(others=0.05, step_s=0.1)
    course = replace(COURSE, prompts=("lru-cache",), output_tokens=100)
    probing = asyncio.create_task(rig.probe(course))
    await advance(8.0)
    assert rig.steps[-1].state is ProbeStep.WRITING
    rig.cpu()
    rig.others = 0.5
    await advance(1.0)
    assert probing.done()
    (probe,) = await probing
    assert (probe.outcome, probe.raw) == (ProbeOutcome.CROWDED, None)


@pytest.mark.parametrize(
    ("others", "step_s", "profile"),
    [
        (0.05, 0.2, LLAMA),
        (0.5, 0.0, LLAMA),
        (0.5, 0.2, replace(LLAMA, gpus=(0,))),
    ],
)
async def test_a_slow_engine_is_measured(others: float, step_s: float, profile: Applied) -> None:
    """Long steps without others, others without long steps, and an engine on GPUs.

    A loss of speed that is the engine's own is found as before, and so is one for which others are the cause while
    they delay nobody by more than a step.
    """
    rig = CrowdedRig(others=others, step_s=step_s, profile=profile)
    assert ProbeOutcome.CROWDED not in outcomes(await rig.probe())
    assert len(rig.asked_s) > 1


async def test_a_search_for_pieces_ends_on_a_busy_box() -> None:
    """A size that others have made small is not kept."""
    rig = CrowdedRig(others=0.5, step_s=0.2)
    await rig.probe(WARM_UP)
    assert (rig.prober.piece_tokens(LLAMA), len(rig.asked_s)) == (16, 1)

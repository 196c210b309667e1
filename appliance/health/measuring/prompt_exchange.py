"""Exchange with an engine about one prompt of a probe: its pieces, the whole prompt, the metrics."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from appliance.engines.shared.engine import Probing
from appliance.health.clock import HealthClock
from appliance.health.measuring.evidence import EvidenceRecording, RoomWatch
from appliance.health.measuring.lane_requests import LaneRequests, ProbeEndedError, StreamedAnswer
from appliance.model.measurements import (
    RawTimings,
)
from appliance.model.profile import Applied
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.measurement import (
    Measurement,
    RequestCounters,
    finished_between,
    measure,
    piece_times,
    read_counters,
)
from appliance.speed.probe_prompts import (
    MOST_STEP_S,
    PREFILL,
    PieceSize,
    continues,
    piece_end,
    piece_tokens_of,
    prefixes,
    probe_request,
    probing_of,
    prompt_text,
    series_of,
)
from appliance.speed.probe_sizes import ProbeCourse, ProbeStep

_METRICS_PAGE: Final = "/metrics"
_VERSION_TRIES: Final = 3
_MOST_LOST: Final = 2
"""Prompts in a row that an engine began anew after a piece, after which it gets them in one."""


@dataclass(slots=True, kw_only=True)
class EngineNotes:
    """Notes on one engine."""

    started_unix_s: float | None
    """Start of the engine; None: not known."""
    engine: str
    fingerprint: str
    """Name of the engine and fingerprint of the profile, which notes hold for."""
    probing: Probing
    size: PieceSize = field(default_factory=PieceSize)
    in_pieces: bool = True
    """Whether prompts are sent in pieces."""
    lost: int = 0
    """Prompts in a row that the engine began anew after a piece."""
    has_metrics: bool = True
    """Whether the engine's metrics may tell the times of a request."""
    crowded: bool = False
    """Whether other programs made the steps of the engine long when it was last asked."""
    version: str | None = None
    version_tries: int = 0

    @classmethod
    def of(cls, applied: Applied, started_unix_s: float | None) -> "EngineNotes":
        """Return the notes on an engine that has just started."""
        probing = probing_of(applied)
        return cls(
            started_unix_s=started_unix_s,
            engine=applied.engine,
            fingerprint=applied.fingerprint,
            probing=probing,
            in_pieces=probing.piece_parameters is not None,
            has_metrics=probing.has_metrics,
        )

    def hold_for(self, applied: Applied, started_unix_s: float | None) -> bool:
        """Tell whether the notes are on the engine of a profile since this start."""
        mine = (self.started_unix_s, self.engine, self.fingerprint)
        return mine == (started_unix_s, applied.engine, applied.fingerprint)

    def note_piece(self, before: RawTimings | None, piece: RawTimings) -> bool:
        """Note a piece; returns whether the engine evaluated it from where the one before ended."""
        if before is None or continues(before, piece):
            return True
        self.lost += 1
        if self.lost >= _MOST_LOST:
            self.in_pieces = False
        return False

    async def counters(self, requests: LaneRequests) -> RequestCounters | None:
        """Return the engine's counters; None: it has none. Raises `ProbeEndedError`."""
        if not self.has_metrics:
            return None
        page = await requests.page(_METRICS_PAGE)
        self.has_metrics = page is not None
        return None if page is None else read_counters(page)

    async def read_version(
        self, requests: LaneRequests, module_version: Callable[[str], str | None]
    ) -> None:
        """Read the engine's version unless it is known, or was looked for often enough."""
        if self.version is not None or self.version_tries >= _VERSION_TRIES:
            return
        self.version_tries += 1
        if self.probing.version_of_module:
            self.version = module_version(self.probing.version_of_module)
        elif self.probing.version_page is not None:
            try:
                text = await requests.page(self.probing.version_page.path)
            except ProbeEndedError:
                return
            self.version = None if text is None else self.probing.version_page.read(text)


Tell = Callable[[ProbeStep, str], None]
"""Function that tells a step of the exchange, and a text for people."""

_REREADS: Final = 5
_REREAD_PAUSE_S: Final = 0.2
"""An engine may count a request a moment after the end of its response."""
_SAMPLE_SHARE: Final = 0.4
"""Part of the usual time of an answer after which the GPUs are read under load."""
_SAMPLE_AFTER_S: Final = 0.5
"""Time for the same where the usual time is not known."""
_PIECE_S: Final = 30.0
_LOOK_S: Final = 0.5
"""Time for which others are watched before an engine is asked that they made slow."""
_LEAST_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContact:
    """Engine of a profile, as an exchange reaches it."""

    applied: Applied
    requests: LaneRequests
    notes: EngineNotes
    clock: HealthClock
    room: RoomWatch | None
    """None: other programs do not make the engine slow."""

    async def find_room(self) -> None:
        """Raise `ProbeEndedError` if others who made the engine slow still use the CPU."""
        if self.room is None:
            return
        self.room.begin()
        if self.notes.crowded:
            await self.clock.sleep_until(self.clock.monotonic_s() + _LOOK_S)
            if text := self.room.crowd_text():
                raise ProbeEndedError(ProbeOutcome.CROWDED, text)
            self.notes.crowded = False
            self.room.begin()

    def _check_step(self, step_s: float) -> None:
        """Raise `ProbeEndedError` if a step of the engine was long because of others."""
        if self.room is None or not self.notes.in_pieces:
            return
        if step_s > MOST_STEP_S and (text := self.room.crowd_text()):
            self.notes.crowded = True
            raise ProbeEndedError(
                ProbeOutcome.CROWDED, f"a step of the engine took {step_s * 1000:.0f} ms: {text}"
            )
        self.room.begin_again()

    async def send(
        self,
        prompt: str,
        *,
        output_tokens: int,
        salt: str,
        continues: bool,
        timeout_s: float,
        first_text: asyncio.Event | None = None,
    ) -> StreamedAnswer:
        """Return the answer to a prompt. Raises `ProbeEndedError`."""
        request = probe_request(
            self.applied, prompt, output_tokens=output_tokens, salt=salt, continues=continues
        )
        if request is None:
            raise ProbeEndedError(ProbeOutcome.FAILED, "the profile generates no text")
        path, body = request
        return await self.requests.stream(
            path, body, timeout_s=timeout_s, first_text=first_text, on_step=self._check_step
        )

    async def send_piece(
        self, prompt: str, *, salt: str, before: RawTimings | None, timeout_s: float = _PIECE_S
    ) -> RawTimings:
        """Return the times of a piece. Raises `ProbeEndedError`.

        Args:
            prompt: The prompt up to the end of the piece.
            salt: That of the whole prompt.
            before: Piece that went before; None: this one is the first.
            timeout_s: Time for its answer.
        """
        answer = await self.send(
            prompt, output_tokens=1, salt=salt, continues=before is not None, timeout_s=timeout_s
        )
        piece = piece_times(answer.stream, ended_s=answer.ended_s)
        if piece is None:
            self.notes.in_pieces = False
            text = "the engine tells no times of a piece of a prompt"
            raise ProbeEndedError(ProbeOutcome.UNMEASURED, text)
        self.check(before, piece)
        return piece

    def check(self, before: RawTimings | None, piece: RawTimings) -> None:
        """Raise `ProbeEndedError` if the engine began the prompt anew after the piece before."""
        if not self.notes.note_piece(before, piece):
            text = "the engine began the prompt anew: another request may have come in between"
            raise ProbeEndedError(ProbeOutcome.YIELDED, text)


class PromptExchange:
    """Exchange about one prompt.

    Args:
        engine: Engine that is asked.
        course: Course of the probe.
        name: Name of the prompt.
        salt: Letters and digits that no other prompt has.
        tell: Told about each step.
    """

    def __init__(
        self, engine: EngineContact, course: ProbeCourse, name: str, *, salt: str, tell: Tell
    ) -> None:
        self._engine = engine
        self._course = course
        self._name = name
        self._salt = salt
        self._tell = tell
        self._text = prompt_text(name, salt)
        self._decodes = series_of(name) is Series.DECODE
        self._end_s = engine.clock.monotonic_s() + course.limit_s(name)
        self._began = False

    async def measure(self, recording: EvidenceRecording) -> Measurement:
        """Return what the exchange has measured, or how it ended."""
        try:
            return await self._measure(recording)
        except ProbeEndedError as end:
            measured = end.measurement
            if measured.outcome is ProbeOutcome.BUSY and self._began:
                return Measurement(
                    outcome=ProbeOutcome.YIELDED, detail=f"between two requests: {measured.detail}"
                )
            return measured

    async def _measure(self, recording: EvidenceRecording) -> Measurement:
        notes, requests = self._engine.notes, self._engine.requests
        await self._engine.find_room()
        before = await notes.counters(requests)
        self._began = before is not None
        pieces = await self._send_pieces()
        answer = await self._send_whole(pieces, recording)
        return measure(
            answer.stream,
            ended_s=answer.ended_s,
            wanted_tokens=self._course.answer_tokens(self._name),
            before=before,
            after=await self._counters_after(before),
            pieces=pieces,
        )

    async def _send_pieces(self) -> Sequence[RawTimings]:
        size = piece_tokens_of(self._name)
        if self._decodes and self._engine.notes.in_pieces:
            size = self._engine.notes.size.tokens
        texts = () if size is None else prefixes(self._text, size)
        pieces: list[RawTimings] = []
        for number, text in enumerate(texts, start=1):
            self._tell(ProbeStep.READING, f"piece {number} of {len(texts) + 1}")
            before = pieces[-1] if pieces else None
            piece = await self._engine.send_piece(
                text, salt=self._salt, before=before, timeout_s=min(_PIECE_S, self._left_s())
            )
            self._began = True
            pieces.append(piece)
        return pieces

    async def _send_whole(
        self, pieces: Sequence[RawTimings], recording: EvidenceRecording
    ) -> StreamedAnswer:
        first_text = asyncio.Event()
        async with self._followed(first_text, recording):
            answer = await self._engine.send(
                self._text,
                output_tokens=self._course.answer_tokens(self._name),
                salt=self._salt,
                continues=bool(pieces),
                timeout_s=self._left_s(),
                first_text=first_text,
            )
        last = piece_times(answer.stream, ended_s=answer.ended_s) if pieces else None
        if last is not None:
            self._engine.check(pieces[-1], last)
            self._engine.notes.lost = 0
        return answer

    def _left_s(self) -> float:
        return max(_LEAST_S, self._end_s - self._engine.clock.monotonic_s())

    @asynccontextmanager
    async def _followed(
        self, first_text: asyncio.Event, recording: EvidenceRecording
    ) -> AsyncIterator[None]:
        """Tell that the answer begins, and read the GPUs while the engine works on it."""
        task = asyncio.create_task(self._follow(first_text, recording))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _follow(self, first_text: asyncio.Event, recording: EvidenceRecording) -> None:
        if not self._decodes:
            await recording.sample()
            return
        await first_text.wait()
        self._tell(ProbeStep.WRITING, f"{self._course.output_tokens} tokens are written")
        rate = self._course.decode_tok_s
        usual_s = self._course.output_tokens / rate * _SAMPLE_SHARE if rate else _SAMPLE_AFTER_S
        clock = self._engine.clock
        await clock.sleep_until(clock.monotonic_s() + usual_s)
        await recording.sample()

    async def _counters_after(self, before: RequestCounters | None) -> RequestCounters | None:
        """Return the counters once they have the request; None: they are not to be had."""
        if before is None:
            return None
        notes, clock = self._engine.notes, self._engine.clock
        found = None
        with suppress(ProbeEndedError):  # a request of a client has come: the answer stands
            for _ in range(_REREADS):
                found = await notes.counters(self._engine.requests)
                if found is None or finished_between(before, found):
                    return found
                await clock.sleep_until(clock.monotonic_s() + _REREAD_PAUSE_S)
        if found is not None and "finished" not in found:
            notes.has_metrics = False  # A page without the engine's own counters, all the same.
        return found


async def find_piece_size(engine: EngineContact, salt: str) -> None:
    """Find the size of pieces for an engine by sending the long prompt in pieces that grow.

    The search ends early where anything else goes on. The larger result of two searches counts: on a
    busy box a piece may take longer than it does, and never less.
    """
    notes, text = engine.notes, prompt_text(PREFILL, salt)
    size, end = PieceSize(), 0
    before: RawTimings | None = None
    with suppress(ProbeEndedError):
        while notes.in_pieces and not size.settled:
            end = piece_end(text, end, size.tokens)
            if end == len(text):
                break
            before = await engine.send_piece(text[:end], salt=salt, before=before)
            size = size.after(before)
    if not notes.size.settled or (size.settled and size.tokens > notes.size.tokens):
        notes.size = size

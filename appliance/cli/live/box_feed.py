"""Feed of a live screen: the supervisor's watch, the health agent, GPUs, a log.

===============  ===============================================  ==============================
source           asked                                            again
===============  ===============================================  ==============================
supervisor       `watch`; `status` where it knows no `watch`      1 s after it was lost; 2 s
its operation    `attach`, when the document has another one      1 s after it was lost
health agent     `speeds`                                         every 5 s
its events       `events` that follow                             5 s after they were lost
GPUs             `gpus`, where the document has any               every 5 s
systemd, files   what `status` reads without a supervisor         every 5 s while it is lost
===============  ===============================================  ==============================

One thread, one `select`: nothing is waited for, and what does not come is absent from the view.
"""

from __future__ import annotations

import os
import time
from collections import deque

import msgspec

from appliance.cli.cells import harmless, printable
from appliance.model.errors import ApplianceError, PermissionDeniedError, UnreachableError
from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.plain_text import JournalLines
from appliance.model.record import Record
from appliance.model.status import StatusDocument
from appliance.presentation.health_sections import (
    alert_section,
    speed_section,
    with_alerts,
    without_speeds,
)
from appliance.wire.client import Conversation
from appliance.wire.control_events import (
    AcceptedEvent,
    EndedEvent,
    PhaseEvent,
    StatusEvent,
    status_in,
)
from appliance.wire.control_requests import (
    CONTROL,
    AttachRequest,
    GpuStateRequest,
    StatusRequest,
    SwitchRequest,
    WatchStatusRequest,
)
from appliance.wire.conversation import ErrorEvent, HelloEvent, ResultEvent
from appliance.wire.health_socket import (
    HEALTH,
    MeasurementEventsRequest,
    SpeedsRequest,
)
from appliance.wire.json_values import number_in, object_in, objects_in, text_in
from appliance.wire.typed_json import from_strict_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Final

    from appliance.cli.paths import Places
    from appliance.model.events import AlertEvent, MeasuredEvent
    from appliance.model.status import AlertSection, StatusDocument
    from appliance.wire.control_events import AcceptedEvent, PhaseEvent
    from appliance.wire.conversation import ResultEvent
    from appliance.wire.json_values import Json


class OperationProgress(Record):
    """Running operation, as far as its events have come."""

    accepted: AcceptedEvent
    ended: tuple[PhaseEvent, ...] = ()
    """Phases that are over, in their order."""
    running: PhaseEvent | None = None
    """Last event of the phase that runs; None: none does now."""
    since_s: float = 0.0
    """Monotonic time at which that phase began."""


class LiveView(Record):
    """Knowledge of the box at one moment; texts are printable."""

    document: StatusDocument | None = None
    """None: nothing is known yet."""
    received_s: float = 0.0
    """Monotonic time at which the document came."""
    lost_s: float | None = None
    """Monotonic time since which the supervisor is not heard; None: it is."""
    trouble: str = ""
    """Reason why it is not heard, and what to do; empty: it is."""
    operation: OperationProgress | None = None
    gpus: Sequence[Json] = ()
    """Health and evidence of each GPU (`appliance.model.measurements.BoxGpus`), joined by index."""
    events: Sequence[MeasuredEvent | AlertEvent] = ()
    """Last events, oldest first."""
    log: Sequence[str] = ()
    """Last lines of the log that is shown."""
    plan: ResultEvent | None = None
    """Answer about what a switch that is to be confirmed would do; None: not answered."""
    answer: str = ""
    """Outcome of the last request to the supervisor; empty: nothing to say."""


_RETRY_S: Final = 1.0
_POLL_S: Final = 2.0
_AGENT_S: Final = 5.0
_GPUS_S: Final = 5.0
_OFFLINE_S: Final = 5.0
_OFFLINE_AFTER_S: Final = 3.0
"""Time for systemd to start the supervisor again, before the status is read from systemd itself."""
_SILENT_S: Final = 60.0
"""Silence after which a supervisor is taken for lost: three times its longest pause."""
_AT_MOST_S: Final = 0.05
"""Time for the rest of a line that has begun."""
_MOST_EVENTS: Final = 50
_MOST_LOG: Final = 500
_MOST_LOG_LINE: Final = 2000
_READ_BYTES: Final = 65_536
_SPEEDS_NOT_KNOWN: Final = "speed not known: systemctl status appliance-health"


class BoxFeed:
    """Sources of one live screen.

    Args:
        places: Paths of this box.
        offline: Reads the document without the supervisor; raises `ApplianceError`.
        details: Whether events, GPUs and phases are wanted, beside the document.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        places: Places,
        offline: Callable[[Places, ApplianceError], StatusDocument],
        *,
        details: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.view = LiveView()
        self.version = 0
        """Number of changes of the view so far."""
        self.has_speeds = False
        """Whether the health agent has answered, or cannot be reached."""
        self._places = places
        self._offline = offline
        self._clock = clock
        self._open: dict[str, Conversation[Any]] = {}
        self._due = {"watch": 0.0, "speeds": 0.0}
        if details:
            self._due |= {"events": 0.0, "gpus": 0.0}
        self._is_watching = True
        self._heard_s = clock()
        self._offline_s = 0.0
        self._details = details
        self._told = {"measured": 0, "alert": 0}
        self._events: deque[MeasuredEvent | AlertEvent] = deque(maxlen=_MOST_EVENTS)
        self._speed = without_speeds(_SPEEDS_NOT_KNOWN)
        self._alerts: AlertSection | None = None
        self._status = StatusDocument()
        """Status document as the supervisor sent it last."""
        self._operation: int | None = None
        self._journal: subprocess.Popen[bytes] | None = None
        self._log_lines = JournalLines(_MOST_LOG_LINE)
        self._log: deque[str] = deque(maxlen=_MOST_LOG)

    def close(self) -> None:
        """Leave every conversation, and end the log's reader."""
        for name in list(self._open):
            self._leave(name)
        self.stop_log()

    # --- what the loop calls

    def descriptors(self) -> Sequence[int]:
        """Return what to wait for."""
        found = [conversation.fileno() for conversation in self._open.values()]
        if self._journal is not None and self._journal.stdout is not None:
            found.append(self._journal.stdout.fileno())
        return found

    def next_due_s(self) -> float:
        """Return the seconds until the next request is due."""
        waits = [due for name, due in self._due.items() if name not in self._open]
        return max(0.0, min(waits, default=self._clock() + _AGENT_S) - self._clock())

    def take(self, ready: Iterable[int]) -> None:
        """Take what has come on the descriptors, and ask what is due."""
        descriptors = set(ready)
        for name, conversation in list(self._open.items()):
            if conversation.fileno() in descriptors:
                self._read(name, conversation)
        journal = self._journal
        if journal is not None and journal.stdout and journal.stdout.fileno() in descriptors:
            self._read_journal(journal.stdout.fileno())
        now_s = self._clock()
        for name, due in list(self._due.items()):
            if due <= now_s and name not in self._open:
                self._ask(name)
        if "watch" in self._open and now_s - self._heard_s > _SILENT_S:
            self._lost("watch", UnreachableError(CONTROL.not_running))
        self._read_offline(now_s)

    # --- what keys ask for

    def plan_switch(self, name: str) -> None:
        """Ask what a switch would do; the answer comes into the view."""
        self._show(plan=None, answer="")
        self._begin("plan", SwitchRequest(name=name, dry_run=True))

    def switch(self, name: str) -> None:
        """Ask for a switch; its phases come into the view, a refusal as `answer`."""
        self._show(plan=None, answer=f"switch to {name} is asked for")
        self._begin("switch", SwitchRequest(name=name))

    def show_log(self, command: Sequence[str]) -> None:
        """Begin to read a log from a command."""
        import subprocess  # noqa: PLC0415 - 10 ms that only a log needs

        self.stop_log()
        try:
            self._journal = subprocess.Popen(  # noqa: S603 - no shell, the words are ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            self._show(log=(f"journalctl cannot be run: {error.strerror}",))

    def stop_log(self) -> None:
        """End the reading of a log."""
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.kill()
            journal.wait()
            if journal.stdout is not None:
                journal.stdout.close()
        self._log.clear()
        self._log_lines = JournalLines(_MOST_LOG_LINE)
        self._show(log=())

    # --- conversations

    def _ask(self, name: str) -> None:
        match name:
            case "watch":
                self._due[name] = self._clock() + (_RETRY_S if self._is_watching else _POLL_S)
                self._begin(name, WatchStatusRequest() if self._is_watching else StatusRequest())
            case "speeds":
                self._due[name] = self._clock() + _AGENT_S
                self._begin(name, SpeedsRequest(), HEALTH)
            case "events":
                self._due[name] = self._clock() + _AGENT_S
                told, most = self._told, _MOST_EVENTS
                self._begin(
                    name,
                    MeasurementEventsRequest(told["measured"], None, most, True, told["alert"]),  # noqa: FBT003 - in the order of its fields
                    HEALTH,
                )
            case "attach":
                self._due[name] = self._clock() + _RETRY_S
                self._begin(name, AttachRequest(self._operation))
            case _:
                self._due[name] = self._clock() + _GPUS_S
                document = self.view.document
                if document is not None and document.memory is not None and document.memory.gpus:
                    self._begin(name, GpuStateRequest())

    def _begin(self, name: str, request: Any, table: Any = CONTROL) -> None:
        self._leave(name)
        places = self._places
        path = places.health_socket if table is HEALTH else places.control_socket
        try:
            self._open[name] = Conversation(table, path, request, greeting_s=None)
        except ApplianceError as error:
            self._lost(name, error)

    def _leave(self, name: str) -> None:
        conversation = self._open.pop(name, None)
        if conversation is not None:
            conversation.close()

    def _read(self, name: str, conversation: Conversation[Any]) -> None:
        """Take every event that has come."""
        try:
            while True:
                event = conversation.next_event(_AT_MOST_S)
                if event is None:
                    return
                self._heed(name, event)
                if conversation.closed:
                    self._leave(name)
                if self._open.get(name) is not conversation or not conversation.pending:
                    return
        except ApplianceError as error:
            self._leave(name)
            self._lost(name, error)

    def _lost(self, name: str, error: ApplianceError) -> None:
        """Note that a source does not answer."""
        match name:
            case "watch":
                self._leave(name)
                self._due[name] = self._clock() + _RETRY_S
                lost_s = self._clock() if self.view.lost_s is None else self.view.lost_s
                self._show(lost_s=lost_s, trouble=printable(str(error)))
            case "speeds":
                why = error if isinstance(error, PermissionDeniedError) else None
                note = f"speed not known: {why}" if why else _SPEEDS_NOT_KNOWN
                self._speed, self._alerts = without_speeds(note), None
                self._join()
                self.has_speeds = True
            case "plan" | "switch":
                self._show(plan=None, answer=printable(str(error)))
            case _:
                pass  # is asked again, and absent until then

    # --- events

    def _heed(self, name: str, event: object) -> None:
        if isinstance(event, HelloEvent):
            return
        match name:
            case "watch":
                self._heed_watch(event)
            case "speeds" if isinstance(event, ResultEvent):
                details = harmless(event.details)
                self._speed, self._alerts = speed_section(details), alert_section(details)
                self._join()
                self.has_speeds = True
            case "events":
                self._heed_event(event)
            case "gpus" if isinstance(event, ResultEvent):
                self._show(gpus=_joined_gpus(harmless(event.details)))
            case "attach":
                self._heed_phase(event)
            case "plan":
                self._heed_plan(event)
            case "switch":
                self._heed_switch(event)
            case _:
                pass  # a refusal, as by an agent of an earlier release

    def _heed_watch(self, event: object) -> None:
        if isinstance(event, ErrorEvent):
            if self._is_watching and event.kind == "bad-request":
                self._is_watching = False  # a supervisor of an earlier release
                self._due["watch"] = 0.0
            else:
                self._lost("watch", UnreachableError(event.message))
        elif isinstance(event, StatusEvent):
            self._new_document(event.status)
        elif isinstance(event, ResultEvent):
            self._new_document(status_in(event.details))

    def _new_document(self, document: StatusDocument) -> None:
        found = _harmless(document)
        if self.view.document is None and "gpus" in self._due:
            self._due["gpus"] = 0.0
        self._heard_s = self._clock()
        self._status = found
        self._show(
            document=self._joined(),
            received_s=self._heard_s,
            lost_s=None,
            trouble="",
        )
        number = None if found.operation is None else found.operation.id
        if number != self._operation:
            self._operation = number
            self._leave("attach")
            if number is None:
                self._due.pop("attach", None)
                self._show(operation=None)
            elif self._details:
                self._due["attach"] = 0.0

    def _heed_event(self, event: object) -> None:
        if isinstance(event, MeasuredEvent | AlertEvent):
            kind = "alert" if isinstance(event, AlertEvent) else "measured"
            if event.id > self._told[kind]:
                self._told[kind] = event.id
                self._events.append(type(event)(**harmless(event.fields())))
                self._show(events=tuple(sorted(self._events, key=lambda one: one.unix_s)))

    def _heed_phase(self, event: object) -> None:
        operation = self.view.operation
        if isinstance(event, AcceptedEvent):
            self._show(operation=OperationProgress(AcceptedEvent(**harmless(event.fields()))))
        elif isinstance(event, EndedEvent | ResultEvent | ErrorEvent):
            self._due.pop("attach", None)
        elif isinstance(event, PhaseEvent) and operation is not None:
            told = PhaseEvent(**harmless(event.fields()))
            if told.state in {"started", "progress"}:
                since_s = self._clock() - told.ms / 1000
                self._show(operation=operation.replaced(running=told, since_s=since_s))
            else:
                ended = (*operation.ended, told)
                self._show(operation=operation.replaced(ended=ended, running=None))

    def _heed_plan(self, event: object) -> None:
        if isinstance(event, ErrorEvent):
            self._show(plan=None, answer=printable(event.message))
        elif isinstance(event, ResultEvent):
            self._show(plan=event.replaced(details=harmless(event.details)))

    def _heed_switch(self, event: object) -> None:
        if isinstance(event, AcceptedEvent):
            self._leave("switch")  # the operation goes on
            self._operation = event.operation
            self._due["attach"] = 0.0
            self._show(answer="")
        elif isinstance(event, ErrorEvent | EndedEvent | ResultEvent):
            self._show(answer=printable(event.message))

    # --- the rest

    def _read_offline(self, now_s: float) -> None:
        """Read the status from systemd, while the supervisor is away for longer."""
        lost_s = self.view.lost_s
        if lost_s is None:
            return
        known = self.view.document is not None
        if (known and now_s - lost_s < _OFFLINE_AFTER_S) or now_s - self._offline_s < _OFFLINE_S:
            return
        self._offline_s = now_s
        try:
            document = self._offline(self._places, UnreachableError(self.view.trouble))
        except ApplianceError as error:
            self._show(trouble=printable(str(error)))
        else:
            self._status = _harmless(document)
            self._show(document=self._joined(), received_s=now_s, operation=None)
            self._operation = None

    def _join(self) -> None:
        if self.view.document is not None:
            self._show(document=self._joined())

    def _joined(self) -> StatusDocument:
        """Return the supervisor's document with what the health agent has told."""
        return with_alerts(self._status.replaced(speed=self._speed), self._alerts)

    def _read_journal(self, descriptor: int) -> None:
        data = os.read(descriptor, _READ_BYTES)
        self._log.extend(map(printable, self._log_lines.take(data)))
        self._show(log=tuple(self._log))
        if not data and self._journal is not None and self._journal.stdout is not None:
            self._journal.wait()
            self._journal.stdout.close()
            self._journal = None

    def _show(self, **changes: object) -> None:
        self.view = self.view.replaced(**changes)
        self.version += 1


def _harmless(document: StatusDocument) -> StatusDocument:
    """Return a document whose texts have no control characters."""
    plain: Json = msgspec.to_builtins(document)
    return from_strict_json(StatusDocument, harmless(plain))


def _joined_gpus(reading: Json) -> Sequence[Json]:
    """Return the health of each GPU with what its evidence adds, by index."""
    evidence = {
        number_in(sample, "index"): object_in(sample, "evidence")
        for sample in objects_in(reading, "gpus")
    }
    return tuple(
        {**evidence.get(number_in(one, "index"), {}), **one}
        for one in objects_in(reading, "health")
        if text_in(one, "uuid") or number_in(one, "index") is not None
    )

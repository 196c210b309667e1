"""Events of engines: which began to serve, were stopped and ended by themselves, and who asked.

What is known of it is what the status documents of the supervisor say, one after the other:

=============================================  ============================================
a profile that served                          event
=============================================  ============================================
stops                                          none yet: the next document has the reason
waits for its restart, or has failed           ``engine-ended``, with the cause
is stopped, or was refused                     ``engine-stopped``, with who asked
loads or serves with another process           ``engine-stopped`` if an operation asked for
                                               it, else ``engine-ended``
=============================================  ============================================

One that serves with a process that is not known adds ``engine-serves``. The first document adds nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from appliance.model.measurements import EventKind, MeasurementEvent
from appliance.model.status import OperationHead, ProfileRow, StatusDocument
from appliance.model.wording import requester_name

_CRASHED: Final = frozenset({"restarting", "failed"})
_DOWN: Final = frozenset({"stopped", "refused"})


class EngineHistory:
    """Engines that serve, as far as events were told of them."""

    def __init__(self) -> None:
        self._up: dict[str, int | None] | None = None
        """Processes of the engines that serve, by profile; None: no document yet."""
        self._crashed: set[str] = set()
        """Profiles whose engine ended by itself, and that have not served since."""
        self._last: int | None = None
        """Number of the operation that had ended last at the last document."""

    def take(self, document: StatusDocument, *, unix_s: float) -> Sequence[MeasurementEvent]:
        """Return the events that a status document adds."""
        ended = document.last_operation
        number = None if ended is None else ended.id
        asked: OperationHead | None = document.operation
        if asked is None and number != self._last:
            asked = ended
        self._last = number
        before, up = self._up, dict[str, int | None]()
        events: list[MeasurementEvent] = []
        for row in document.profiles:
            name, state = row.name, row.state
            if state == "serving":
                up[name] = row.main_pid
            elif state == "stopping" and before is not None and name in before:
                up[name] = before[name]
            if before is not None and state != "stopping":
                events += (
                    MeasurementEvent(unix_s=unix_s, profile=name, kind=kind, text=text)
                    for kind, text in self._news(row, before, up, _asked_text(name, asked))
                )
        self._up = up
        return events

    def _news(
        self,
        row: ProfileRow,
        before: Mapping[str, int | None],
        up: Mapping[str, int | None],
        asked: str,
    ) -> Iterable[tuple[EventKind, str]]:
        name, state = row.name, row.state
        is_new = name in up and (name not in before or before[name] != up[name])
        if name in before and (is_new or name not in up):
            if state in _CRASHED or (state not in _DOWN and not asked):
                self._crashed.add(name)
                how = row.note if state in _CRASHED else ""
                yield EventKind.ENGINE_ENDED, f"its engine {how or 'ended by itself'}"
            else:
                yield EventKind.ENGINE_STOPPED, f"stopped {asked or 'by hand'}"
        if is_new:
            again = " again after its engine ended" if name in self._crashed else ""
            self._crashed.discard(name)
            yield EventKind.ENGINE_SERVES, f"serves{again}{f', {asked}' if asked else ''}"


def _asked_text(name: str, asked: OperationHead | None) -> str:
    """Return which operation asked for a change of a profile; empty: none did."""
    if asked is None or name not in {*asked.profiles, *asked.target}:
        return ""
    what = " ".join((asked.kind, *asked.target))
    return f"for {what} by {requester_name(asked.requested_by)}"

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
from appliance.model.wording import requester_name
from appliance.wire.json_values import Json, number_in, object_in, objects_in, text_in, texts_in

_CRASHED: Final = frozenset({"restarting", "failed"})
_DOWN: Final = frozenset({"stopped", "refused"})


class EngineHistory:
    """Engines that serve, as far as events were told of them."""

    def __init__(self) -> None:
        self._up: dict[str, float | None] | None = None
        """Processes of the engines that serve, by profile; None: no document yet."""
        self._crashed: set[str] = set()
        """Profiles whose engine ended by itself, and that have not served since."""
        self._last: float | None = None
        """Number of the operation that had ended last at the last document."""

    def take(self, document: Json, *, unix_s: float) -> Sequence[MeasurementEvent]:
        """Return the events that a status document adds."""
        ended = object_in(document, "last_operation")
        asked = object_in(document, "operation")
        if not asked and number_in(ended, "id") != self._last:
            asked = ended
        self._last = number_in(ended, "id")
        before, up = self._up, dict[str, float | None]()
        events: list[MeasurementEvent] = []
        for row in objects_in(document, "profiles"):
            name, state = text_in(row, "name"), text_in(row, "state")
            if state == "serving":
                up[name] = number_in(row, "main_pid")
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
        row: Json,
        before: Mapping[str, float | None],
        up: Mapping[str, float | None],
        asked: str,
    ) -> Iterable[tuple[EventKind, str]]:
        name, state = text_in(row, "name"), text_in(row, "state")
        is_new = name in up and (name not in before or before[name] != up[name])
        if name in before and (is_new or name not in up):
            if state in _CRASHED or (state not in _DOWN and not asked):
                self._crashed.add(name)
                how = text_in(row, "note") if state in _CRASHED else ""
                yield EventKind.ENGINE_ENDED, f"its engine {how or 'ended by itself'}"
            else:
                yield EventKind.ENGINE_STOPPED, f"stopped {asked or 'by hand'}"
        if is_new:
            again = " again after its engine ended" if name in self._crashed else ""
            self._crashed.discard(name)
            yield EventKind.ENGINE_SERVES, f"serves{again}{f', {asked}' if asked else ''}"


def _asked_text(name: str, asked: Json) -> str:
    """Return which operation asked for a change of a profile; empty: none did."""
    if name not in {*texts_in(asked, "profiles"), *texts_in(asked, "target")}:
        return ""
    what = " ".join((text_in(asked, "kind"), *texts_in(asked, "target")))
    return f"for {what} by {requester_name(text_in(asked, 'requested_by'))}"

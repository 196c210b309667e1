"""Keeps the time of an operation's phases and tells its feed about them."""

from collections.abc import Mapping

from appliance.domain.events import PhaseChanged, PhaseState
from appliance.domain.operations import Phase
from appliance.ports import Clock
from appliance.supervisor.event_feed import Feed


class PhaseTimer:
    """One phase at a time; entering the next one ends the one before."""

    def __init__(self, feed: Feed, clock: Clock) -> None:
        self._feed = feed
        self._clock = clock
        self._phase: Phase | None = None
        self._began_s = 0.0
        self._text = ""
        self._skipped = False
        self._rolling_back = False
        self._ms: dict[str, float] = {}

    @property
    def milliseconds(self) -> Mapping[str, float]:
        """Milliseconds in each phase that has ended; roll-back phases have a prefix."""
        return dict(self._ms)

    @property
    def current(self) -> Phase | None:
        """The phase that was entered last and has not ended."""
        return self._phase

    @property
    def text(self) -> str:
        """The last thing that was said about it."""
        return self._text

    def enter(self, phase: Phase, text: str = "", *, rolling_back: bool = False) -> None:
        """Be in `phase`: end the one before, or tell news about the same one."""
        if phase is self._phase and rolling_back == self._rolling_back:
            self.tell(text)
            return
        self.end()
        self._phase, self._began_s, self._text = phase, self._clock.monotonic_s(), text
        self._rolling_back, self._skipped = rolling_back, False
        self._publish(PhaseState.STARTED)

    def tell(self, text: str) -> None:
        """News about the current phase; repeated news are not news."""
        if text and text != self._text:
            self._text = text
            self._publish(PhaseState.PROGRESS)

    def skip(self, why: str) -> None:
        """The current phase has nothing to do."""
        self._text, self._skipped = why, True

    def end(self, *, failed: str = "") -> None:
        """The current phase is over."""
        if self._phase is None:
            return
        state = PhaseState.SKIPPED if self._skipped else PhaseState.DONE
        if failed:
            state, self._text = PhaseState.FAILED, failed
        name = f"roll-back {self._phase}" if self._rolling_back else self._phase.value
        self._ms[name] = round(self._ms.get(name, 0.0) + self._elapsed_ms(), 1)
        self._publish(state)
        self._phase = None

    def _elapsed_ms(self) -> float:
        return (self._clock.monotonic_s() - self._began_s) * 1000

    def _publish(self, state: PhaseState) -> None:
        if self._phase is not None:
            self._feed.publish(
                PhaseChanged(
                    phase=self._phase,
                    state=state,
                    text=self._text,
                    ms=round(self._elapsed_ms(), 1),
                    rolling_back=self._rolling_back,
                )
            )

"""The protocol `CanaryStore`, in memory."""

from collections.abc import Mapping, Sequence

from appliance.model.measurements import CanaryRun, MeasurementEvent


class FakeCanaryStore:
    """Store of what a monitor of quality has added."""

    def __init__(self) -> None:
        self.runs: list[CanaryRun] = []
        self.states: dict[tuple[str, str], str] = {}
        self.events: list[MeasurementEvent] = []

    async def add(
        self,
        *,
        canary_runs: Sequence[CanaryRun] = (),
        states: Mapping[tuple[str, str], str] | None = None,
        events: Sequence[MeasurementEvent] = (),
    ) -> Sequence[MeasurementEvent]:
        self.runs += canary_runs
        self.states.update(states or {})
        begin = len(self.events) + 1
        numbered = [event.replaced(id=begin + place) for place, event in enumerate(events)]
        self.events += numbered
        return numbered

"""A health agent as the command line sees it: a unix socket that tells the events of a story."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from appliance.model.record import Record
from appliance.model.speeds import SeriesSpeed, SpeedReport
from appliance.model.words import ProbeOutcome, Series
from appliance.wire.conversation import ResultEvent
from appliance.wire.health_socket import HEALTH
from tests.fakes.control_server import FakeSupervisor, Hang, HangUp, Step, Story, WaitFor

HealthStory = Sequence[Record | Hang | HangUp | WaitFor]


class FakeHealthAgent(FakeSupervisor):
    """Answers every request for a verb with that verb's events.

    Args:
        path: Where to listen: `CliBox.health_socket`.
        stories: By verb; records are encoded as the agent encodes them.
        turns: By verb, stories for one request after another.
        silent: Say nothing, not even the greeting.
    """

    def __init__(
        self,
        path: Path,
        stories: Mapping[str, HealthStory],
        *,
        turns: Mapping[str, Sequence[HealthStory]] = MappingProxyType({}),
        silent: bool = False,
    ) -> None:
        self._turns = {verb: iter(several) for verb, several in turns.items()}
        encoded = {verb: [_step(step) for step in story] for verb, story in stories.items()}
        if silent:
            super().__init__(path, encoded, greeting=None)
        else:
            super().__init__(path, encoded)

    def _story(self, request: Mapping[str, object]) -> Story:
        turns = self._turns.get(str(request["verb"]))
        return super()._story(request) if turns is None else [_step(step) for step in next(turns)]


def _step(step: Record | Hang | HangUp | WaitFor) -> Step:
    if not isinstance(step, Record):
        return step
    document: Mapping[str, object] = json.loads(HEALTH.encode_event(step))
    return document


def speeds(*reports: SpeedReport, trouble: Sequence[str] = ()) -> ResultEvent:
    """Return the answer to the verb `speeds`."""
    profiles = {report.profile: msgspec.to_builtins(report) for report in reports}
    return ResultEvent(details={"profiles": profiles, "trouble": list(trouble)})


HEALTHY: Final = SeriesSpeed(
    series=Series.DECODE,
    phase="healthy",
    rate=41.2,
    baseline=41.0,
    band=1.2,
    change=0.005,
    rates=(41.0, 40.8, 41.3, 41.2),
)
PREFILL: Final = SeriesSpeed(
    series=Series.PREFILL,
    phase="healthy",
    rate=1850.0,
    baseline=1840.0,
    band=40.0,
    change=0.005,
    rates=(1850.0, 1850.0),
)


def report(
    name: str, now_unix_s: float, decode: SeriesSpeed = HEALTHY, **more: object
) -> SpeedReport:
    """Return the report of a profile whose last probe was three minutes ago."""
    last = now_unix_s - 180
    fields: dict[str, object] = {
        "series": (decode, PREFILL),
        "last_probe_unix_s": last,
        "last_outcome": ProbeOutcome.VALID,
        "last_valid_unix_s": last,
        "next_probe_unix_s": last + 900,
        "ttft_s": 0.41,
        **more,
    }
    return SpeedReport(profile=name, **fields)  # type: ignore[arg-type]  # fields of the class

"""Progress of an operation on a terminal: the time that is left, and the engine's last log line."""

import io
import re

import pytest

from appliance.cli.progress_lines import LiveProgress, progress_for
from appliance.cli.terminal import Terminal
from appliance.wire.control_events import AcceptedEvent, PhaseEvent

ACCEPTED = AcceptedEvent(
    operation=1, kind="switch", target=("genesis",), evicts=("aeon",), usual_ms=48_000.0
)
LOADING = PhaseEvent(phase="load", state="progress", text="loading, 9 GiB resident", ms=12_000.0)
LOG = "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:10<00:10,  5.02s/it]"


class Watched:
    """Terminal of a person who follows an operation."""

    def __init__(self, columns: int = 80) -> None:
        self._stream = io.StringIO()
        self._columns = columns
        self.progress = progress_for(
            Terminal(stream=self._stream, interactive=True, columns=columns), silent=False
        )
        assert isinstance(self.progress, LiveProgress)

    def drawn(self, *events: AcceptedEvent | PhaseEvent) -> str:
        """Show events; return what the last one drew, with a word for cursor movements."""
        for event in events:
            self._stream.seek(0)
            self._stream.truncate()
            self.progress.show(event)
        text = self._stream.getvalue()
        for line in re.sub(r"\x1b\[\d*[AJK]|\r", "", text).split("\n"):
            assert len(line) <= self._columns
        return (
            text.replace("\x1b[A", "<up>")
            .replace("\r\x1b[J", "<both>")
            .replace("\r\x1b[2K", "<one>")
        )


def test_the_time_that_is_usually_left_is_shown() -> None:
    """The time counts from the usual duration of the operation; the phase has its own time."""
    last = Watched(100).drawn(ACCEPTED, LOADING)
    assert re.search(r" ⠋ loading .* 12\.\d s  ~4[78]\.\d s left$", last)


@pytest.mark.parametrize(
    "events",
    [
        [ACCEPTED.replaced(usual_ms=None), LOADING],
        [ACCEPTED.replaced(joined=True), LOADING],
        [ACCEPTED, LOADING.replaced(state="failed"), LOADING],
        [ACCEPTED, LOADING.replaced(state="done", rolling_back=True), LOADING],
        [ACCEPTED.replaced(usual_ms=900.0), LOADING],
    ],
    ids=["not known", "joined", "failed", "rolling back", "over"],
)
def test_no_time_is_left_where_it_is_not_known(events: list[AcceptedEvent | PhaseEvent]) -> None:
    """The usual time is that of success, from the beginning of the operation."""
    assert " left" not in Watched(100).drawn(*events)


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_engines_last_log_line_is_below_the_phase(columns: int) -> None:
    """The line is cut, the cursor goes back up, and the next drawing erases both lines."""
    watched = Watched(columns)
    first = watched.drawn(ACCEPTED, LOADING.replaced(log=LOG))
    line, _, below = first.partition("\n")
    assert "loading" in line
    shown = f"   {LOG}"
    cut = shown if len(shown) < columns else f"{shown[: columns - 2]}…"
    assert below == f"{cut}<up>"
    second = watched.drawn(LOADING)
    assert second.startswith("<both>")
    assert second.endswith(f"\n{cut}<up>")


def test_the_log_line_goes_with_its_phase() -> None:
    """The lines that stand in the end are those of phases; the next phase has no line of the one before."""
    watched = Watched()
    watched.drawn(ACCEPTED, LOADING.replaced(log=LOG))
    ended = watched.drawn(LOADING.replaced(state="done"))
    assert ended.startswith("<both> ✓ loading")
    assert "safetensors" not in ended
    assert "safetensors" not in watched.drawn(PhaseEvent(phase="warm-up", state="started"))

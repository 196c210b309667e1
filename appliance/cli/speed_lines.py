"""Lines about the measured speed of a profile on the status screen."""

from __future__ import annotations

from appliance.cli.terminal import Style, Terminal
from appliance.presentation.speed_texts import figures_text, loss_text
from appliance.status.speed_row import SpeedRow, change_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

_ALL_PASS: Final = 0.995
"""Share of canaries from which on none is worth a line."""


def speed_lines(row: SpeedRow, terminal: Terminal, *, now: float) -> Iterable[str]:
    """Return the lines about one profile, the first with its figures."""
    yield figures_text(row, now)
    for series in row.series:
        if series.is_lost:
            yield terminal.paint(loss_text(series, now), Style.YELLOW)
        elif series.is_in_doubt and series.change is not None:
            doubt = f"{series.series} {change_text(series.change)} in the last probes"
            yield terminal.paint(f"{doubt}: watched until it is certain", Style.DIM)
    if row.quality is not None and row.quality < _ALL_PASS:
        passed = f"{row.quality * 100:.0f} % of the canaries passed lately"
        yield terminal.paint(f"quality {passed}", Style.YELLOW)
    if row.trouble:
        yield terminal.paint(row.trouble, Style.YELLOW)

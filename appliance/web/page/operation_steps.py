"""Running operation as the steps that a person watches."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from appliance.model.amounts import duration
from appliance.model.operations import Kind, Phase
from appliance.model.status import OperationRow
from appliance.presentation.box_texts import PHASE_LABELS, operation_text, progress_text

_STOPPING: Final = (Phase.PREFLIGHT, Phase.HOLD, Phase.DRAIN, Phase.STOP, Phase.RELEASE)
_STARTING: Final = (Phase.START, Phase.LOAD, Phase.WARM_UP, Phase.VERIFY)
_STEPS: Final = {
    Kind.SWITCH: (*_STOPPING, *_STARTING, Phase.COMMIT),
    Kind.START: (Phase.PREFLIGHT, Phase.HOLD, *_STARTING, Phase.COMMIT),
    Kind.STOP: (Phase.PREFLIGHT, Phase.HOLD, Phase.DRAIN, Phase.STOP, Phase.COMMIT),
    Kind.RESTART: (*_STOPPING, *_STARTING, Phase.COMMIT),
    Kind.HOLD: (*_STOPPING, Phase.COMMIT),
    Kind.REPAIR: (Phase.PREFLIGHT, *_STARTING, Phase.COMMIT),
    Kind.RUN: (*_STOPPING, Phase.RUN, *_STARTING, Phase.COMMIT),
}
"""Phases that an operation of a kind usually passes, in their order."""
_ORDER: Final = {phase.value: number for number, phase in enumerate(Phase)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStep:
    """One phase: ``done``, ``now`` or ``next``."""

    phase: str
    label: str
    state: str
    text: str = ""
    """Progress and time of the phase of now; empty for others."""
    percent: int | None = None
    """Share of the phase of now that is over; None: not known, and for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """Operation that runs."""

    id: int
    title: str
    elapsed: str
    rolling_back: bool
    steps: tuple[OperationStep, ...]


def operation_view(operation: OperationRow) -> OperationView:
    """Return the view of the status document's `operation`."""
    return OperationView(
        id=operation.id,
        title=operation_text(operation),
        elapsed=duration(operation.elapsed_s),
        rolling_back=operation.rolling_back,
        steps=tuple(_steps(operation)),
    )


def _steps(operation: OperationRow) -> Iterable[OperationStep]:
    now = operation.phase
    kinds = {kind.value: phases for kind, phases in _STEPS.items()}
    usual = [phase.value for phase in kinds.get(operation.kind, ())]
    at = _ORDER.get(now, -1)
    for phase in sorted({*usual, *([now] if now else [])}, key=lambda p: _ORDER.get(p, at)):
        place = _ORDER.get(phase, at)
        state = "now" if phase == now else "done" if place < at else "next"
        yield OperationStep(
            phase=phase,
            label=PHASE_LABELS.get(phase, phase),
            state=state,
            text=_text(operation) if state == "now" else "",
            percent=_percent(operation) if state == "now" else None,
        )


def _text(operation: OperationRow) -> str:
    deadline_s, told = operation.deadline_s, operation.text
    bound = "" if deadline_s is None else f" of at most {duration(deadline_s)}"
    parts = [
        "" if told == PHASE_LABELS.get(operation.phase) else told,
        progress_text(operation),
        f"{duration(operation.phase_s)}{bound}",
    ]
    return " · ".join(part for part in parts if part)


def _percent(operation: OperationRow) -> int | None:
    share = operation.progress
    return None if share is None else round(100 * max(0.0, min(share, 1.0)))

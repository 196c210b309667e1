"""Databases of the daemons, filled through their stores, for tests and figures of damage."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Final

from appliance.alerts.book import AlertBook, AlertState, Evaluation
from appliance.model.measurements import CanaryRun, EventKind, MeasurementEvent, TrafficSums
from appliance.model.operations import Finished, Goal, Kind, Operation, Outcome
from appliance.model.words import Mark
from appliance.system.sqlite.alert_store import AlertStore
from appliance.system.sqlite.measurement_store import MeasurementStore
from appliance.system.sqlite.operation_store import OperationStore
from appliance.system.sqlite.state_store import StateStore
from tests.fakes.alert_samples import profile_subject, told, transition
from tests.fakes.probe_rows import probe


def operation(now: float) -> Operation:
    """Return a switch that nothing has been written of."""
    return Operation(
        id=0,
        kind=Kind.SWITCH,
        target=("genesis",),
        goal=Goal(start=("genesis",), commit=("genesis",)),
        boot_id="boot-1",
        requested_by="ana (uid 1000, pid 7)",
        began_unix_s=now,
        began_s=10.0,
    )


def ended(begun: Operation) -> Finished:
    """Return the end of an operation, a second after its begin."""
    return Finished(
        operation=begun,
        outcome=Outcome.DONE,
        message="serving",
        finished_unix_s=begun.began_unix_s + 1.0,
    )


def event(now: float) -> MeasurementEvent:
    """Return an event of a profile."""
    return MeasurementEvent(unix_s=now, profile="genesis", kind=EventKind.ACCEPTED, text="as usual")


async def write_operations(path: Path, rows: int, now: float) -> None:
    """Write operations, and a mark each."""
    store = OperationStore(path, keep_rows=10 * rows)
    await store.open()
    for number in range(rows):
        await store.finish(ended(await store.begin(operation(now - rows + number))))
    for number in range(rows):
        await store.set_mark(f"model{number}", Mark.STANDBY, by="ana")
    await store.close()


async def write_states(path: Path, rows: int, now: float) -> None:
    """Write two changes of state each."""
    store = StateStore(path, retry_after_s=0.0)
    for number in range(2 * rows):
        await store.observe(
            {"aeon": f"state{number % 7}", f"model{number}": "serving"}, now - 2 * rows + number
        )
    await store.close()


async def write_alerts(path: Path, rows: int, now: float) -> None:
    """Write a state, a transition and a row of the outbox each."""
    store = AlertStore(path, retry_after_s=0.0)
    await store.open()
    subjects = [profile_subject(f"model{number}") for number in range(rows)]
    one = transition()
    book = AlertBook(
        states={
            (subject, one.rule): AlertState(subject=subject, rule=one.rule) for subject in subjects
        },
        next_alert=100,
    )
    await store.commit(Evaluation(book=book), targets=[], memory="{}", now_unix_s=now)
    for number, subject in enumerate(subjects):
        changed = transition(unix_s=now - rows + number, subject=subject, alert=f"A{number}")
        evaluation = replace(told([changed]), book=book)
        await store.commit(evaluation, targets=["phone"], now_unix_s=now)
    await store.close()


async def write_measurements(path: Path, rows: int, now: float) -> None:
    """Write a probe, a run of a canary, a state of a detector and an event each, traffic and a bench."""
    store = MeasurementStore(path, retry_after_s=0.0)
    await store.open()
    for number in range(rows):
        run = CanaryRun(profile="genesis", canary=f"c{number}", unix_s=now, passed=True, detail="")
        await store.add(
            probe=probe(now - rows + number),
            canary_runs=[run],
            states={("genesis", f"series{number}"): "{}"},
            events=[event(now)],
        )
    sums = TrafficSums(unix_s=now, output_tokens=1, decode_s=1.0, prompt_tokens=1, cached_tokens=0)
    await store.add_traffic("genesis", sums)
    await store.add_bench("genesis", now, {"a": 1})
    await store.close()


WRITERS: Final[dict[str, Callable[[Path, int, float], Coroutine[object, object, None]]]] = {
    "operations": write_operations,
    "states": write_states,
    "alerts": write_alerts,
    "measurements": write_measurements,
}

"""Builder of the status document: what the box serves, and what it should serve.

The supervisor builds it from what it observes; the CLI builds the same document from systemd
alone when the supervisor does not answer. `appliance.status.verdict` has the verdict.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from appliance.model.engine_build import EngineBuild
from appliance.model.names import GATEWAY_UNIT
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import HoldUntil
from appliance.model.profile import Applied, Catalogue
from appliance.model.status import (
    BuildRow,
    EndedOperationRow,
    GatewayRow,
    HoldRow,
    MemoryRow,
    OperationRow,
    ProfileFileRow,
    ProfileMemoryRow,
    ProfileRow,
    ProfileState,
    RunRow,
    StallRow,
    StatusDocument,
    SupervisorRow,
    VerificationRow,
    WatchRow,
)
from appliance.model.wording import printable
from appliance.model.words import Mark
from appliance.status.profile_verdict import ended_badly
from appliance.status.stalls import Stall, stall_words
from appliance.status.unit_state import UnitVerdict, unit_verdict
from appliance.status.verdict import verdict_of
from appliance.status.verification import difference_note
from appliance.switch.engine_findings import lacking_options
from appliance.switch.goals import in_the_way
from appliance.switch.outcomes import BY_HAND, rival_end_text, stop_text
from appliance.switch.repair import evicted_in_vain


def build_row(applied: Applied, build: EngineBuild | None) -> BuildRow | None:
    """Return the row of a build; None: its engine was not asked since its program was replaced."""
    if build is None:
        return None
    return BuildRow(
        version=printable(build.version) or None,
        asked_unix_s=build.asked_unix_s,
        problem=printable(build.problem),
        lacks=list(lacking_options(applied, build)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledForm:
    """Installed units and profile files, compared with what apply wrote and with what runs."""

    outdated: frozenset[str] = frozenset()
    """Profiles that run in another form than that of their unit."""
    unit_changes: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    """Lines of each unit that apply did not write; None: not known."""
    profile_files: Sequence[ProfileFileRow] = ()
    builds: Mapping[str, EngineBuild] = field(default_factory=dict)
    """Builds of engines, as far as they are known."""


@dataclass(slots=True, kw_only=True)
class _RowFacts:
    """Facts of which a row is made, besides the profile, its unit and the time."""

    mark: Mark | None
    committed: bool
    edited: bool
    pending: bool | None
    late_key: bool
    """Whether the gateway has the key of its engine after a restart only."""
    unit_changes: Sequence[str]
    build: EngineBuild | None
    refusal: str | None
    memory: ProfileMemoryRow | None
    missed: str | None
    stall: Stall | None
    verification: VerificationRow | None


class KnownRows:
    """Rows of profiles that do not run, as last made: of hundreds of profiles nearly all are as they were."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Applied, ObservedUnit, _RowFacts, ProfileRow]] = {}

    def row(
        self, applied: Applied, unit: ObservedUnit, now_s: float, facts: _RowFacts
    ) -> ProfileRow:
        """Return the row of a profile, made anew if it runs or anything about it has changed."""
        known = self._rows.get(applied.name)
        if known is not None and known[:3] == (applied, unit, facts):
            return known[3]
        row = _profile_row(applied, unit, now_s, facts)
        if row.uptime_s is None:
            self._rows[applied.name] = applied, unit, facts, row
        return row

    def forget_all_but(self, names: Collection[str]) -> None:
        """Forget the rows of other profiles."""
        if len(self._rows) > len(names):
            self._rows = {name: known for name, known in self._rows.items() if name in names}


def build_status(
    *,
    catalogue: Catalogue,
    observed: Observed,
    committed: Iterable[str],
    hold_until: HoldUntil,
    marks: Mapping[str, Mark] | None,
    operation: OperationRow | None,
    last_operation: EndedOperationRow | None,
    last_change: EndedOperationRow | None = None,
    stopped: frozenset[str] = frozenset(),
    held_by: str | None = None,
    memory: MemoryRow | None,
    supervisor: SupervisorRow,
    host: str,
    version: str,
    now: float,
    now_s: float,
    edited: frozenset[str] = frozenset(),
    refusals: Mapping[str, str] | None = None,
    memory_of: Mapping[str, ProfileMemoryRow] | None = None,
    gateway: GatewayRow | None = None,
    stalls: Mapping[str, Stall] | None = None,
    verifications: Mapping[str, VerificationRow] | None = None,
    watches: Mapping[str, Mark] | None = None,
    installed: InstalledForm | None = None,
    known: KnownRows | None = None,
) -> StatusDocument:
    """Return the status document of one instant.

    Args:
        catalogue: The applied profiles.
        observed: Their units.
        committed: Names that a boot starts.
        hold_until: Unix seconds when the hold ends, ``forever``, or None for no hold.
        marks: The supervisor's marks; None when they are not known.
        operation: The running operation's row, None for none.
        last_operation: The last finished operation's row, None for none.
        last_change: The row of the last one that was not refused, None for none.
        stopped: Committed profiles whose last operation of this boot was a stop.
        held_by: Requester of the hold; None: not known.
        memory: The memory row; None when it was not read.
        supervisor: Whether the supervisor runs.
        host: This machine's name.
        version: Of the appliance.
        now: Unix seconds, for a hold's end.
        now_s: Monotonic seconds, for ages.
        edited: Profiles whose file differs from what is applied.
        refusals: The gate's last word by profile, while it is a refusal.
        memory_of: What each profile needs and holds; None: not known.
        gateway: The gateway's row; None when it was not asked.
        stalls: Profiles whose engine makes no progress; None: nobody looked.
        verifications: What engines report, against their profiles; None: nobody asked.
        watches: Marks of the ``[[watch]]`` entries; None: not known.
        installed: Units and profile files compared with what runs; None: nobody looked.
        known: Rows of earlier documents; None: every row is made.
    """
    wanted = sorted(set(committed))
    hold = _hold_row(hold_until, active=observed.hold_active, by=held_by, now=now)
    # A unit that stops for a hold, an operation or a rival was not stopped by hand.
    run = _run_row(observed.run, now_s)
    alone = hold is None and operation is None and run is None
    busy = frozenset(observed.busy())
    refusals = refusals or {}
    files = [] if installed is None else list(installed.profile_files)
    evicted = evicted_in_vain(
        committed=wanted, observed=observed, catalogue=catalogue, refusals=refusals
    )
    listening = None if gateway is None else gateway.listening
    late_keys = () if listening is None else listening.engine_keys
    known = known or KnownRows()
    known.forget_all_but(catalogue)
    rows = [
        known.row(
            applied,
            observed.unit(name),
            now_s,
            _RowFacts(
                mark=None if marks is None else marks.get(name, applied.first_mark),
                committed=name in wanted,
                edited=name in edited,
                pending=None if installed is None else name in installed.outdated,
                late_key=name in late_keys,
                unit_changes=() if installed is None else installed.unit_changes.get(name) or (),
                build=None if installed is None else installed.builds.get(name),
                refusal=refusals.get(name),
                memory=(memory_of or {}).get(name),
                missed=_why_missed(
                    name,
                    observed,
                    evicted.get(name),
                    last=last_operation,
                    watched=supervisor.state == "up",
                    held=hold_until is not None,
                    chosen=name in stopped,
                )
                if name in wanted and alone and not busy & in_the_way(name, catalogue)
                else None,
                stall=(stalls or {}).get(name),
                verification=(verifications or {}).get(name),
            ),
        )
        for name, applied in sorted(catalogue.items())
    ]
    return StatusDocument(
        host=host,
        version=version,
        supervisor=supervisor,
        committed=wanted,
        hold=hold,
        run=run,
        operation=operation,
        last_operation=last_operation,
        last_change=last_change,
        memory=memory,
        gateway=gateway,
        profiles=rows,
        profile_files=files,
        watches=[WatchRow(name=n, mark=m.value) for n, m in sorted((watches or {}).items())],
        verdict=verdict_of(
            rows,
            wanted,
            catalogue=catalogue,
            hold=hold,
            run=run,
            operation=operation,
            supervisor=supervisor,
            memory=memory,
            gateway=gateway,
            files=files,
            now=now,
        ),
    )


def endpoint_of(applied: Applied) -> str:
    """Return where clients connect to the backend: ``127.0.0.1:8022`` or ``unix:/run/…``."""
    if applied.endpoint.socket is not None:
        return f"unix:{applied.endpoint.socket}"
    return f"127.0.0.1:{applied.endpoint.port}"


def _profile_row(
    applied: Applied,
    unit: ObservedUnit,
    now_s: float,
    facts: _RowFacts,
) -> ProfileRow:
    verdict = unit_verdict(unit, refusal=facts.refusal)
    state = verdict.state
    # A unit that was changed by hand needs a reload too, until apply has settled the change.
    changed = facts.edited or (unit.needs_reload and not facts.unit_changes)
    is_pending = None if facts.pending is None else facts.pending and bool(unit.main_pid)
    return ProfileRow(
        name=applied.name,
        mark=None if facts.mark is None else facts.mark.value,
        description=applied.description,
        engine=applied.engine,
        model=applied.model,
        served=list(applied.names),
        endpoint=endpoint_of(applied),
        claim=sorted(applied.claim.devices),
        state=state,
        committed=facts.committed,
        since_unix_s=unit.since_unix_s or None,
        uptime_s=uptime_of(unit, now_s),
        status_text=_status_text(unit, state),
        restarts=unit.restarts if state != "stopped" else 0,
        main_pid=unit.main_pid or None,
        edited_since_apply=facts.edited or unit.needs_reload,
        restart_pending=is_pending,
        unit_changes=list(facts.unit_changes),
        build=build_row(applied, facts.build),
        memory=facts.memory,
        stall=None
        if facts.stall is None or state != "serving"
        else StallRow(in_flight=facts.stall.in_flight, quiet_s=round(facts.stall.quiet_s, 1)),
        verification=facts.verification if state == "serving" else None,
        note=stall_words(facts.stall)
        if facts.stall is not None and state == "serving"
        else _note(unit, verdict, missed=facts.missed)
        or _joined_notes(
            difference_note(facts.verification) if state == "serving" else None,
            _build_note(applied, facts.build),
            # A restart may be all that the two above want.
            *_change_notes(
                applied.name,
                changed=changed,
                by_hand=bool(facts.unit_changes),
                pending=bool(is_pending),
                late_key=facts.late_key,
            ),
        ),
    )


def _status_text(unit: ObservedUnit, state: ProfileState) -> str:
    """Return the status text, unless it is what systemd has kept of an engine that has ended."""
    is_over = ended_badly(state) and unit.has_engine_text
    return "" if state == "stopped" or is_over else unit.status_text


def _why_missed(
    name: str,
    observed: Observed,
    rival: str | None,
    *,
    last: EndedOperationRow | None,
    watched: bool,
    held: bool,
    chosen: bool,
) -> str | None:
    """Return why a committed profile that could run is stopped; None: not known."""
    if rival is not None:
        return f"evicted by {rival}, which {rival_end_text(observed.unit(rival))}"
    if chosen:
        return BY_HAND
    return stop_text(name, observed.unit(name), last, watched=watched, held=held)


def _note(unit: ObservedUnit, verdict: UnitVerdict, *, missed: str | None) -> str | None:
    if not unit.loaded:
        return "its unit is missing: sudo appliance apply"
    if verdict.state == "stopped":
        return _joined_notes(missed, verdict.text)
    return verdict.text or None


def _build_note(applied: Applied, build: EngineBuild | None) -> str | None:
    """Return which options the present build of the engine lacks; None: none that is known."""
    lacks = () if build is None else lacking_options(applied, build)
    return (
        f"its engine's build has no {', '.join(lacks)}: appliance show {applied.name}"
        if lacks
        else None
    )


def _change_notes(
    name: str, *, changed: bool, by_hand: bool, pending: bool, late_key: bool
) -> Iterator[str]:
    """Return what is not in force of a profile."""
    if changed:
        yield "its profile changed since it was applied: sudo appliance apply"
    if by_hand:
        yield "its unit was changed by hand: sudo appliance apply shows how"
    if pending:
        yield f"a restart is pending: appliance restart {name}"
    if late_key:
        yield f"the gateway has its engine's key after a restart: sudo systemctl restart {GATEWAY_UNIT}"


def _joined_notes(*notes: str | None) -> str | None:
    """Return notes as one; None: there is none."""
    return "; ".join(filter(None, notes)) or None


def _hold_row(hold_until: HoldUntil, *, active: bool, by: str | None, now: float) -> HoldRow | None:
    if isinstance(hold_until, (int, float)):
        if hold_until <= now and not active:
            return None  # over; the file stays until the profiles that it stopped are back
        return HoldRow(until_unix_s=float(hold_until), kept=True, requested_by=by)
    if hold_until is not None or active:
        kept = hold_until is not None
        return HoldRow(until_unix_s=None, kept=kept, requested_by=by if kept else None)
    return None


def _run_row(unit: ObservedUnit, now_s: float) -> RunRow | None:
    if unit.idle:
        return None
    ending = unit.active is ActiveState.DEACTIVATING
    return RunRow(
        state="running" if unit.serving else "ending" if ending else "waiting",
        text=unit.status_text or "a command",
        since_unix_s=unit.since_unix_s if unit.serving and unit.since_unix_s else None,
        uptime_s=uptime_of(unit, now_s),
    )


def uptime_of(unit: ObservedUnit, now_s: float) -> float | None:
    """Return how long a unit has been up; None: not up, or not known."""
    return round(now_s - unit.since_s, 1) if unit.serving and unit.since_s else None

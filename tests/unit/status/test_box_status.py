"""The status document and its verdict."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.engine_build import EngineBuild
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import FOREVER, HoldUntil
from appliance.model.profile import Catalogue, Endpoint
from appliance.model.status import (
    BuildRow,
    EndedOperationRow,
    GatewayRow,
    HoldRow,
    MemoryRow,
    OperationRow,
    ProfileFileRow,
    ProfileFileState,
    RunRow,
    StallRow,
    StatusDocument,
    SupervisorRow,
    Verdict,
)
from appliance.model.words import Mark
from appliance.status.box_status import InstalledForm, KnownRows, build_status, endpoint_of
from appliance.status.profile_verdict import profile_exit
from appliance.status.stalls import Stall
from appliance.wire.control import Exit
from appliance.wire.sd_notify import is_of_running_engine
from appliance.wire.typed_json import from_json
from tests.fakes.profiles import applied, catalogue

NOW = 1_000_000.0
NOW_S = 500.0
"""The same on the monotonic clock."""
UP = ObservedUnit(
    active=ActiveState.ACTIVE, sub="running", main_pid=42, since_unix_s=NOW - 60, since_s=NOW_S - 60
)
STOPPED = ObservedUnit(since_unix_s=NOW - 900)
EVICTED = ObservedUnit(since_unix_s=NOW - 900, stopped_s=8.0)
LIMIT = "start-limit-hit"
NEVER_RAN = ObservedUnit()
FAILED = ObservedUnit(active=ActiveState.FAILED, sub="failed", result="exit-code", exit_status=3)
LOADING = ObservedUnit(active=ActiveState.ACTIVATING, sub="start", status_text="loading 3 of 9 GiB")
RESTARTING = ObservedUnit(
    active=ActiveState.ACTIVATING, sub="auto-restart", result="signal", exit_status=9
)
STOP = {"kind": "stop", "target": [], "outcome": "done", "message": "genesis stopped"}
HOLD = {**STOP, "kind": "hold"}
FULL_DISK = {**STOP, "outcome": "refused", "message": "cannot write /var/lib/appliance/hold"}
REPAIR = {
    "kind": "repair",
    "target": ["genesis"],
    "outcome": "refused",
    "message": "12.0 GiB of GPU 0 held",
}
BOX = catalogue(
    applied("aeon", "gpu-all", port=8023),
    applied("embedder", port=8040),
    applied("genesis", "gpu-all", port=8022, mark=Mark.LIVE),
)


def status(
    units: Mapping[str, ObservedUnit],
    *committed: str,
    hold: HoldUntil = None,
    hold_active: bool = False,
    operation: object = None,
    down: bool = False,
    marks: Mapping[str, Mark] | None = None,
    edited: frozenset[str] = frozenset(),
    refusals: Mapping[str, str] | None = None,
    run: ObservedUnit = NEVER_RAN,
    memory: object = None,
    memory_of: object = None,
    last_operation: object = None,
    stalls: Mapping[str, Stall] | None = None,
    gateway: object = None,
    held_by: str | None = None,
    installed: InstalledForm | None = None,
    catalogue: Catalogue = BOX,
    now_s: float = NOW_S,
    rows_before: KnownRows | None = None,
) -> StatusDocument:
    # Rows of operations and of memory pass through, so tests give the keys that matter to them.
    rows: dict[str, Any] = {
        "operation": None if operation is None else from_json(OperationRow, operation),
        "last_operation": None
        if last_operation is None
        else from_json(EndedOperationRow, last_operation),
        "memory": None if memory is None else from_json(MemoryRow, memory),
        "memory_of": memory_of,
        "gateway": None if gateway is None else from_json(GatewayRow, gateway),
    }
    known = dict.fromkeys(BOX, NEVER_RAN) | dict(units)
    return build_status(
        catalogue=catalogue,
        observed=Observed(units=known, hold_active=hold_active, run=run),
        committed=committed,
        hold_until=hold,
        marks=marks,
        **rows,
        supervisor=SupervisorRow(state="down" if down else "up", uptime_s=None),
        host="garage",
        version="0.1.0",
        now=NOW,
        now_s=now_s,
        edited=edited,
        refusals=refusals,
        stalls=stalls,
        held_by=held_by,
        installed=installed,
        known=rows_before,
    )


def why(document: StatusDocument) -> str:
    return " | ".join(document.verdict.why)


@pytest.mark.parametrize("unit", [UP, FAILED, STOPPED])
def test_a_stopped_profile_has_no_status_text(unit: ObservedUnit) -> None:
    """A unit keeps its last text in systemd, which says nothing about the present of one that ended."""
    ended = replace(unit, status_text="serving", has_engine_text=True)
    (_, _, row) = status({"genesis": ended}).profiles
    assert row.status_text == ("serving" if unit is UP else "")


@pytest.mark.parametrize(
    ("document", "state", "exit_status", "sentence"),
    [
        (status({"genesis": UP}, "genesis"), "serving", 0, ""),
        (status({"genesis": UP}, "genesis", "embedder"), "degraded", 1, "appliance start embedder"),
        (
            status({"genesis": FAILED, "embedder": UP}, "genesis", "embedder"),
            "degraded",
            1,
            "genesis is committed but failed (exited with status 3): appliance logs genesis",
        ),
        (
            status({"genesis": RESTARTING, "embedder": UP}, "genesis"),
            "degraded",
            1,
            "genesis is committed but restarting (was killed by signal 9)",
        ),
        (status({"genesis": LOADING}, "genesis"), "nothing", 3, "appliance wait genesis"),
        (status({"genesis": STOPPED}, "genesis"), "nothing", 3, "(stopped by hand)"),
        (status({}), "nothing", 3, "no profile is committed: appliance switch NAME"),
        (status({}, "gone"), "nothing", 3, "gone is committed but not applied"),
        (
            status({"aeon": UP}, "genesis", operation={"kind": "switch", "target": ["genesis"]}),
            "serving",
            0,
            "switch to genesis is running",
        ),
        (
            status(
                {}, "genesis", operation={"kind": "switch", "target": ["genesis"], "phase": "load"}
            ),
            "nothing",
            3,
            "switch to genesis is running (load)",
        ),
        (status({}, "genesis", hold=FOREVER), "nothing", 3, "on hold without an end"),
        (status({}, "genesis", hold=NOW + 7200), "nothing", 3, "on hold for another 2 h"),
        (
            status({}, "genesis", hold_active=True),
            "nothing",
            3,
            "held by hand until a switch, a start or a boot",
        ),
        (
            status({"genesis": UP, "aeon": STOPPED}, "aeon"),
            "degraded",
            1,
            "aeon is committed but stopped: appliance switch aeon",
        ),
        (
            status({"genesis": LOADING}, "aeon"),
            "nothing",
            3,
            "aeon is committed but stopped (genesis is loading in its place): appliance switch aeon",
        ),
        (
            status(
                {
                    "genesis": LOADING,
                    "aeon": replace(
                        FAILED, was_stopped=True, result="timeout", stopped_s=1.0, changed_s=3.0
                    ),
                },
                "aeon",
            ),
            "nothing",
            3,
            "aeon is committed but stopped (genesis is loading in its place; had to be killed after 2 s): ",
        ),
        (status({"genesis": FAILED}, "aeon"), "nothing", 3, "appliance start aeon"),
        (status({"genesis": UP}, "genesis", down=True), "degraded", 1, "supervisor not running"),
        (status({}, "genesis", down=True), "nothing", 3, "supervisor not running"),
    ],
)
def test_verdict(document: StatusDocument, state: str, exit_status: int, sentence: str) -> None:
    """The verdict says whether the right thing serves, and every sentence what to do."""
    assert document.verdict.state == state
    assert document.verdict.exit == exit_status
    assert sentence in why(document)


def test_an_uncommitted_profile_is_told_but_not_wrong() -> None:
    """A rival that somebody started by hand serves; what a reboot would do is said."""
    document = status({"aeon": UP}, "aeon")
    assert document.verdict.why == []
    document = status({"aeon": UP, "embedder": UP}, "aeon")
    assert document.verdict.exit == 0
    assert "embedder serves but is not committed: after a reboot aeon will" in why(document)


def test_a_hold_without_a_time_is_said_even_while_something_serves() -> None:
    """A hold that never ends is in every status, lest it be forgotten."""
    document = status({"genesis": UP}, "genesis", hold=FOREVER)
    assert document.hold == HoldRow(kept=True)
    assert "on hold without an end" in why(document)
    document = status({}, "genesis", hold=NOW + 60, held_by="ana (uid 1000, pid 4121)")
    assert document.hold is not None
    assert document.hold.requested_by == "ana (uid 1000, pid 4121)"
    assert "on hold by ana for another 60 s" in why(document)


def test_a_hold_by_hand_is_not_said_to_outlive_a_boot() -> None:
    """The hold unit without its file holds until the next boot only."""
    document = status({}, "genesis", hold_active=True)
    assert document.hold == HoldRow(kept=False)
    assert "reboots" not in why(document)


def test_a_hung_driver_is_told_and_wrongs_nobody() -> None:
    """A profile beside a hung driver still serves; the status says why others cannot start."""
    memory = {"gpu_state": "hung", "gpu_error": "the GPU driver hangs: silent for 5.0 s"}
    document = status({"genesis": UP}, "genesis", memory=memory)
    assert document.verdict.exit == 0
    assert why(document) == (
        "the GPU driver hangs: silent for 5.0 s: running models continue, no start is admitted"
    )
    other = status({"genesis": UP}, "genesis", memory={"gpu_state": "lost"})
    assert other.verdict.why == []


def test_memory_is_told_with_its_profile() -> None:
    """Memory that a profile holds and needs is in its row; unknown is null."""
    document = status({"genesis": UP}, memory_of={"genesis": {"vram_bytes": 1}})
    found: list[object] = [row.memory for row in document.profiles]
    assert found == [None, None, {"vram_bytes": 1}]


def test_an_engine_without_progress_degrades_the_box() -> None:
    """An engine without progress serves by systemd's state; row, verdict and exit status differ."""
    found = {"genesis": Stall(in_flight=3, quiet_s=95.2)}
    document = status({"genesis": UP}, "genesis", stalls=found)
    row = document.profiles[2]
    words = "no progress: 3 requests in flight, no byte and no CPU for 95 s"
    assert (row.state, row.note) == ("serving", words)
    assert row.stall == StallRow(in_flight=3, quiet_s=95.2)
    assert profile_exit(row) == Exit.FAILED
    assert document.verdict == Verdict(
        state="degraded",
        exit=1,
        why=[f"genesis makes {words}: appliance restart genesis"],
    )
    stopped = status({"genesis": STOPPED}, "genesis", stalls=found)
    assert stopped.profiles[2].stall is None


def test_a_hold_excuses_what_does_not_serve() -> None:
    """During a hold nothing is missing."""
    document = status({}, "genesis", hold=NOW + 60)
    assert "committed but" not in why(document)


@pytest.mark.parametrize(
    ("hold", "active", "row"),
    [
        (None, False, None),
        (NOW + 60, True, {"until_unix_s": NOW + 60, "kept": True}),
        (NOW - 60, True, {"until_unix_s": NOW - 60, "kept": True}),
        (NOW - 60, False, None),
        (FOREVER, False, {"until_unix_s": None, "kept": True}),
        (None, True, {"until_unix_s": None, "kept": False}),
    ],
)
def test_a_hold_is_told_as_long_as_it_lasts(
    hold: HoldUntil,
    active: bool,  # noqa: FBT001
    row: dict[str, object] | None,
) -> None:
    """A hold whose time is over is none any more, although what it stopped may not be back."""
    document = status({"genesis": STOPPED}, "genesis", hold=hold, hold_active=active)
    assert document.hold == (None if row is None else from_json(HoldRow, row))
    # A stop by hand is claimed only where no hold has stopped it.
    assert ("stopped by hand" in str(document.profiles)) is (hold is None and not active)


def test_an_endpoint_is_where_clients_connect() -> None:
    """A port is on loopback, a socket is a path."""
    profile = replace(BOX["genesis"], endpoint=Endpoint(socket="/run/genesis.sock"))
    assert endpoint_of(BOX["genesis"]) == "127.0.0.1:8022"
    assert endpoint_of(profile) == "unix:/run/genesis.sock"


def test_an_empty_box_says_how_to_begin() -> None:
    """Without profiles the next command is apply."""
    document = build_status(
        catalogue={},
        observed=Observed(units={}),
        committed=(),
        hold_until=None,
        marks={},
        operation=None,
        last_operation=None,
        memory=None,
        supervisor=SupervisorRow(state="up", uptime_s=1.0),
        host="garage",
        version="0.1.0",
        now=NOW,
        now_s=NOW_S,
    )
    assert document.verdict.why == ["no profile is applied: sudo appliance apply"]
    assert document.verdict.exit == Exit.NOTHING_SERVING


@pytest.mark.parametrize(
    ("document", "note"),
    [
        (status({}), None),
        (status({"genesis": STOPPED}, "genesis"), "stopped by hand"),
        (status({}, "genesis"), "not started since the supervisor began"),
        (status({}, "genesis", down=True), None),
        (status({}, "genesis", last_operation=STOP), "stopped by hand"),
        (status({}, "genesis", last_operation={**STOP, "target": ["aeon"]}), "not started since"),
        (
            status(
                {"genesis": STOPPED},
                "genesis",
                last_operation={
                    "kind": "start",
                    "target": ["genesis"],
                    "outcome": "failed",
                    "message": "genesis did not start: it crashed",
                },
            ),
            "start failed: genesis did not start: it crashed",
        ),
        (status({}, "genesis", last_operation={**STOP, "kind": "start"}), "not started since"),
        (status({}, "genesis", last_operation={**FULL_DISK, "kind": "hold"}), "not started since"),
        (status({"genesis": STOPPED}, "genesis", last_operation=FULL_DISK), "stopped by hand"),
        (
            status({"genesis": ObservedUnit(result="timeout")}, "genesis"),
            "made no progress until the deadline, then stopped",
        ),
        (
            status(
                {"genesis": EVICTED, "aeon": replace(FAILED, result=LIMIT, changed_s=9.0)},
                "genesis",
            ),
            "evicted by aeon, which failed too often",
        ),
        (
            status(
                {"genesis": EVICTED, "aeon": replace(NEVER_RAN, changed_s=9.0)},
                "genesis",
                refusals={"aeon": "held by ana"},
            ),
            "evicted by aeon, which was refused by the gate",
        ),
        (status({"genesis": STOPPED, "aeon": UP}, "genesis"), None),
        (status({"genesis": STOPPED}, "genesis", hold=FOREVER), None),
        (status({"genesis": STOPPED}, "genesis", hold=NOW - 9, last_operation=HOLD), None),
        (
            status({"genesis": STOPPED}, "genesis", hold=NOW - 9, last_operation=REPAIR),
            "repair refused: 12.0 GiB of GPU 0 held",
        ),
        (status({"genesis": STOPPED}, "genesis", operation={"kind": "switch"}), None),
        (status({"genesis": UP}, edited=frozenset({"genesis"})), "sudo appliance apply"),
        (status({"genesis": ObservedUnit(loaded=False)}), "its unit is missing"),
        (status({}, refusals={"genesis": "gpu-all is held by aeon"}), "gpu-all is held by aeon"),
        (status({"genesis": UP}, refusals={"genesis": "an old one"}), None),
        (status({"genesis": ObservedUnit(result="exec-condition")}), "was refused by the gate"),
        (
            status(
                {"genesis": ObservedUnit(active=ActiveState.FAILED, result="protocol")},
            ),
            "ended by itself with status 0",
        ),
    ],
)
def test_note(document: StatusDocument, note: str | None) -> None:
    """The one thing worth saying about a profile is said beside it."""
    said = document.profiles[2].note
    assert said == note if note is None or said is None else note in said


def test_marks_are_unknown_without_the_supervisor() -> None:
    """A profile's first mark is no answer to what its mark is now."""
    assert {row.mark for row in status({}).profiles} == {None}
    rows = status({}, marks={"aeon": Mark.RETIRED}).profiles
    assert [row.mark for row in rows] == ["retired", "standby", "live"]


@pytest.mark.parametrize(
    ("document", "exit_status"),
    [
        (status({"genesis": UP}), Exit.OK),
        (status({"genesis": FAILED}), Exit.FAILED),
        (status({"genesis": STOPPED}), Exit.NOTHING_SERVING),
        (status({"genesis": STOPPED}, "genesis"), Exit.FAILED),
    ],
)
def test_exit_status_of_one_profile(document: StatusDocument, exit_status: int) -> None:
    """`status NAME` tells failed and wanted-but-down from simply stopped."""
    assert profile_exit(document.profiles[2]) == exit_status


UNITS = st.builds(
    ObservedUnit,
    active=st.sampled_from(list(ActiveState)),
    sub=st.sampled_from(["dead", "running", "auto-restart", "failed"]),
    has_job=st.booleans(),
    result=st.sampled_from(["success", "exit-code", "exec-condition", "timeout"]),
    since_unix_s=st.sampled_from([0.0, NOW]),
)


@given(
    units=st.dictionaries(st.sampled_from(list(BOX)), UNITS),
    committed=st.sets(st.sampled_from(["aeon", "genesis", "gone"])),
    hold=st.sampled_from([None, FOREVER, NOW + 5]),
    down=st.booleans(),
)
def test_verdict_never_contradicts_the_rows(
    units: dict[str, ObservedUnit], committed: set[str], hold: HoldUntil, *, down: bool
) -> None:
    """The exit is 3 exactly when no row serves, and anything but 0 has a reason."""
    document = status(units, *committed, hold=hold, down=down)
    serving = [r for r in document.profiles if r.state == "serving"]
    verdict = document.verdict
    assert (verdict.exit == Exit.NOTHING_SERVING) == (not serving)
    assert verdict.exit == Exit.OK or verdict.why
    assert msgspec.convert(msgspec.to_builtins(document), StatusDocument) == document


@pytest.mark.parametrize(
    ("run", "row"),
    [
        (NEVER_RAN, None),
        (
            replace(UP, status_text="sh of user ana"),
            {
                "state": "running",
                "text": "sh of user ana",
                "since_unix_s": NOW - 60,
                "uptime_s": 60.0,
            },
        ),
        (
            replace(LOADING, since_unix_s=NOW - 900),
            {
                "state": "waiting",
                "text": "loading 3 of 9 GiB",
                "since_unix_s": None,
                "uptime_s": None,
            },
        ),
        (
            ObservedUnit(active=ActiveState.DEACTIVATING, main_pid=7),
            {"state": "ending", "text": "a command", "since_unix_s": None, "uptime_s": None},
        ),
    ],
)
def test_a_command_in_place_of_models(run: ObservedUnit, row: Mapping[str, object] | None) -> None:
    """The launcher's own text is shown, and since when the command runs."""
    assert status({}, run=run).run == (None if row is None else from_json(RunRow, row))


def test_a_command_explains_what_does_not_serve() -> None:
    """Also to who cannot see its operation: the missing model is neither a fault nor stopped."""
    document = status(
        {"genesis": STOPPED}, "genesis", run=replace(UP, status_text="sh of user ana")
    )
    assert document.verdict.why == [
        "sh of user ana runs in place of models: sudo systemctl stop appliance-run.service ends it"
    ]
    (row,) = (r for r in document.profiles if r.name == "genesis")
    assert row.note is None
    running = {"kind": "run", "target": ["sh"], "phase": "run"}
    known = status({}, "genesis", run=UP, operation=running)
    assert known.verdict.why == ["run sh is running (run): appliance wait"]


CRASHED = replace(
    RESTARTING, restarts=3, status_text="serving on :8022, ready after 3.20 s", has_engine_text=True
)


def test_a_crash_loop_is_told_with_its_count_and_without_what_was() -> None:
    """The text of an engine that served is no news of one that has crashed; how often it did is."""
    document = status({"genesis": CRASHED}, "genesis")
    row = document.profiles[2]
    assert (row.state, row.restarts, row.status_text) == ("restarting", 3, "")
    assert row.note == "was killed by signal 9; restarted 3 times so far"
    again = replace(LOADING, restarts=1, status_text="loading: 4.2 GiB resident")
    row = status({"genesis": again}, "genesis").profiles[2]
    assert row.status_text == "loading: 4.2 GiB resident"
    assert row.note == "after a crash; restarted once so far"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("serving on :8022, ready after 3.20 s", ""),
        ("loading: 4.2 GiB resident, 12 s", ""),
        ("not patched: not reported as applied: P4", "not patched: not reported as applied: P4"),
    ],
)
def test_a_failed_profile_keeps_the_text_that_says_why(text: str, shown: str) -> None:
    """The text that systemd has kept of an engine that ran is left out; a reason stays."""
    ended = replace(FAILED, status_text=text, has_engine_text=is_of_running_engine(text))
    assert status({"genesis": ended}, "genesis").profiles[2].status_text == shown


def test_without_a_gateway_the_box_is_degraded() -> None:
    """A model that no client reaches does not serve anybody; one that nobody asked about is unknown."""
    document = status({"genesis": UP}, "genesis", gateway={"state": "down", "listening": None})
    assert (document.verdict.state, document.verdict.exit) == ("degraded", 1)
    assert "no gateway, so no client is answered: sudo systemctl start" in why(document)
    assert status({}, "genesis", gateway={"state": "down", "listening": None}).verdict.exit == 3
    assert (
        status({"genesis": UP}, "genesis", gateway={"state": "up", "listening": None}).verdict.exit
        == 0
    )


def test_a_supervisor_that_waits_for_its_settings_degrades_the_box() -> None:
    """A box without supervision is told as such, and the advice is not to start what runs."""
    document = build_status(
        catalogue=BOX,
        observed=Observed(units={"genesis": UP}),
        committed=("genesis",),
        hold_until=None,
        marks=None,
        operation=None,
        last_operation=None,
        memory=None,
        supervisor=SupervisorRow(state="waiting", uptime_s=None),
        host="garage",
        version="0.1.0",
        now=NOW,
        now_s=NOW_S,
    )
    assert document.verdict == Verdict(state="degraded", exit=1, why=[])


def test_what_is_not_in_force_is_told_beside_the_profile() -> None:
    """A pending restart, a unit that was changed by hand and a changed file are three different things."""
    form = InstalledForm(
        outdated=frozenset({"genesis", "aeon"}),
        unit_changes={"genesis": ("+Nice=5",), "aeon": None},
    )
    document = status(
        {"genesis": UP, "aeon": STOPPED}, installed=form, edited=frozenset({"embedder"})
    )
    aeon, embedder, genesis = document.profiles
    assert genesis.restart_pending is True
    assert genesis.unit_changes == ["+Nice=5"]
    assert genesis.note == (
        "its unit was changed by hand: sudo appliance apply shows how;"
        " a restart is pending: appliance restart genesis"
    )
    # One that does not run is started in the new form.
    assert (aeon.restart_pending, aeon.unit_changes, aeon.note) == (False, [], None)
    assert embedder.note == "its profile changed since it was applied: sudo appliance apply"
    assert status({"genesis": UP}).profiles[2].restart_pending is None


def test_an_engines_key_that_the_gateway_lacks_is_told_beside_the_profile() -> None:
    """The note of status and list names the restart, of the gateway and not of the model."""
    gateway = {"state": "up", "listening": {"engine_keys": ["genesis"]}}
    aeon, _, genesis = status({"genesis": UP}, gateway=gateway).profiles
    restart = "sudo systemctl restart appliance-gateway.service"
    assert genesis.note == f"the gateway has its engine's key after a restart: {restart}"
    assert aeon.note is None


def test_the_build_of_an_engine_is_a_row_of_its_profile() -> None:
    """Version, time and lacking options; a note where the present program lacks one."""
    build = EngineBuild(version="b1", options={"--port": ()}, asked_unix_s=7.0)
    known = InstalledForm(builds={"genesis": build})
    row = status({"genesis": UP}, installed=known).profiles[2]
    assert row.build == BuildRow(version="b1", asked_unix_s=7.0, lacks=[])
    assert row.note is None
    command = ("/opt/l", "--gone")
    catalogue = {**BOX, "genesis": replace(BOX["genesis"], command=command)}
    row = status({"genesis": UP}, catalogue=catalogue, installed=known).profiles[2]
    assert row.note == "its engine's build has no --gone: appliance show genesis"
    outdated = replace(known, outdated=frozenset({"genesis"}))
    row = status({"genesis": UP}, catalogue=catalogue, installed=outdated).profiles[2]
    assert row.note == (
        "its engine's build has no --gone: appliance show genesis;"
        " a restart is pending: appliance restart genesis"
    )


def test_a_unit_edited_by_hand_is_not_said_to_be_an_edited_profile() -> None:
    """Systemd wants a reload of such a unit too; the sentence is about the edit."""
    form = InstalledForm(unit_changes={"genesis": ("+Nice=5",)})
    row = status({"genesis": replace(UP, needs_reload=True)}, installed=form).profiles[2]
    assert row.edited_since_apply
    assert row.note == "its unit was changed by hand: sudo appliance apply shows how"


def test_files_that_are_not_applied_are_told() -> None:
    """A new, a faulty and a removed file are sentences of the verdict, which stays as it is."""

    def file(name: str, state: ProfileFileState, text: str = "") -> ProfileFileRow:
        path = f"/etc/appliance/profiles/{name}.toml"
        return ProfileFileRow(name=name, file=path, state=state, text=text)

    files = (
        file("bad", "faulty", 'bad.toml:1 "x": unknown key\nbad.toml:2 "y": unknown key'),
        file("genesis", "changed"),
        file("gone", "removed"),
        file("new", "unapplied"),
    )
    document = status({"genesis": UP}, "genesis", installed=InstalledForm(profile_files=files))
    assert document.profile_files == list(files)
    assert document.verdict == Verdict(
        state="serving",
        exit=0,
        why=[
            'bad.toml:1 "x": unknown key',
            "gone.toml is gone, and gone still applied: sudo appliance apply",
            "new.toml is not applied: sudo appliance apply",
        ],
    )


_NAMES = st.sampled_from(sorted(BOX))
_UNITS = st.sampled_from([UP, LOADING, RESTARTING, FAILED, STOPPED, NEVER_RAN])
_LOOKS = st.fixed_dictionaries(
    {
        "units": st.dictionaries(_NAMES, _UNITS),
        "edited": st.frozensets(_NAMES),
        "refusals": st.dictionaries(_NAMES, st.just("needs more VRAM")),
        "marks": st.dictionaries(_NAMES, st.sampled_from(Mark)),
        "installed": st.none()
        | st.builds(
            InstalledForm,
            outdated=st.frozensets(_NAMES),
            unit_changes=st.dictionaries(_NAMES, st.just(("+Nice=5",))),
        ),
    }
)


@given(st.lists(_LOOKS, min_size=2, max_size=5))
def test_rows_that_were_kept_are_those_that_would_be_made(looks: list[dict[str, Any]]) -> None:
    """A document with rows that were kept is that of a builder without a memory."""
    rows = KnownRows()
    for number, look in enumerate(looks):
        now_s = NOW_S + number
        assert status(**look, now_s=now_s, rows_before=rows) == status(**look, now_s=now_s)


def test_rows_of_what_does_not_run_are_made_once() -> None:
    """A row is made anew for a profile that runs, and once its profile was away."""
    rows = KnownRows()

    def made(box: Catalogue = BOX) -> dict[str, Any]:
        document = status({"genesis": UP}, catalogue=box, rows_before=rows)
        return {row.name: row for row in document.profiles}

    first, second = made(), made()
    others = BOX.keys() - {"genesis"}
    assert [first[name] is second[name] for name in sorted(others)] == [True] * len(others)
    assert first["genesis"] is not second["genesis"]
    made({name: BOX[name] for name in BOX if name == "genesis"})
    third = made()
    assert [third[name] is second[name] for name in sorted(others)] == [False] * len(others)

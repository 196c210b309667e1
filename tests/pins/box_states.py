"""States of a box: what serves, what ended badly, operations, holds and commands.

Unless a state says otherwise aeon is committed and serves.
"""

from dataclasses import replace
from typing import Final

from tests.fakes.systemd import RUN
from tests.pins.appliance_code import (
    FOREVER,
    ActiveState,
    Finished,
    Goal,
    InstalledForm,
    Kind,
    Mark,
    ObservedUnit,
    Operation,
    Outcome,
    Phase,
    ProfileFileRow,
)
from tests.pins.status_box import BASE, StatusBox, state

# --- what serves --------------------------------------------------------------------------


async def _nothing(_box: StatusBox) -> None:
    return


state(BASE)(_nothing)
state("serving two", "aeon", "mini")(_nothing)


@state("nothing applied")
async def _(box: StatusBox) -> None:
    box.profiles.applied = {}


@state("nothing committed")
async def _(box: StatusBox) -> None:
    await box.ask(Kind.STOP)
    await box.until()
    box.fakes.commitment.names = ()
    box.fakes.store.ended.clear()


@state("serving beside a shared one")
async def _(box: StatusBox) -> None:
    await box.ask(Kind.START, "embedder")
    await box.until()
    await box.drive(100)


@state("started by hand")
async def _(box: StatusBox) -> None:
    box.fakes.systemd.start("genesis")
    await box.drive(5)


@state("loading by hand")
async def _(box: StatusBox) -> None:
    box.fakes.systemd.start("genesis")
    await box.drive(1)


@state("stopped by hand")
async def _(box: StatusBox) -> None:
    box.fakes.systemd.stop("aeon")
    await box.drive(5)


@state("stopped by hand, long ago")
async def _(box: StatusBox) -> None:
    box.give("aeon", ObservedUnit(since_unix_s=900.0, since_s=900.0, stopped_s=950.0))


@state("stopping")
async def _(box: StatusBox) -> None:
    box.fakes.systemd.stop("aeon")


@state("stopped by the appliance")
async def _(box: StatusBox) -> None:
    await box.ask(Kind.STOP, "aeon")
    await box.until()
    await box.drive(30)


@state("committed, not applied")
async def _(box: StatusBox) -> None:
    box.fakes.commitment.names = ("gone", "mini")


@state("without its unit")
async def _(box: StatusBox) -> None:
    box.give("aeon", ObservedUnit(loaded=False))


@state("never started")
async def _(box: StatusBox) -> None:
    box.give("aeon", ObservedUnit())


@state("profile edited since")
async def _(box: StatusBox) -> None:
    (box.root / "aeon.toml").write_text("# another text")


@state("unit edited since")
async def _(box: StatusBox) -> None:
    unit = box.fakes.systemd.observed().unit("aeon")
    box.give("aeon", replace(unit, needs_reload=True))


@state("not in force")
async def _(box: StatusBox) -> None:
    directory = "/etc/appliance/profiles"
    fault = 'bad.toml:3 "ctxsize": unknown key; did you mean "ctx_size"?'
    mini = replace(box.fakes.systemd.observed().unit("mini"), needs_reload=True)
    box.give("mini", mini)
    box.supervised.files.form = InstalledForm(
        outdated=frozenset({"aeon"}),
        unit_changes={"aeon": ("+Nice=5",)},
        profile_files=(
            ProfileFileRow(
                name="bad", file=f"{directory}/bad.toml", state="faulty", text=f"{fault}\nmore"
            ),
            ProfileFileRow(
                name="embedder", file=f"{directory}/embedder.toml", state="removed", text=""
            ),
            ProfileFileRow(name="new", file=f"{directory}/new.toml", state="unapplied", text=""),
        ),
    )


@state("marks")
async def _(box: StatusBox) -> None:
    await box.supervisor.mark("mini", Mark.RETIRED, by="ana")
    await box.supervisor.mark("aeon", Mark.LIVE, by="ana")


@state("long since")
async def _(box: StatusBox) -> None:
    box.fakes.systemd.now_s += 3 * 86_400 + 4000


# --- what ended badly ---------------------------------------------------------------------


@state("crashed")
async def _(box: StatusBox) -> None:
    box.fakes.processes.crash("aeon", status=3)


@state("ended by itself")
async def _(box: StatusBox) -> None:
    box.fakes.processes.crash("aeon", status=0)


@state("crash loop")
async def _(box: StatusBox) -> None:
    crashed = ObservedUnit(
        active=ActiveState.ACTIVATING,
        sub="auto-restart",
        result="exit-code",
        exit_status=1,
        restarts=3,
        status_text="serving on :8023, ready after 3.20 s",
        has_engine_text=True,
    )
    box.give("aeon", crashed)


@state("starts after a crash")
async def _(box: StatusBox) -> None:
    starts = ObservedUnit(
        active=ActiveState.ACTIVATING,
        sub="start",
        restarts=1,
        status_text="loading: 4.2 GiB resident, 12 s",
        has_engine_text=True,
    )
    box.give("aeon", starts)


@state("waits for its next start")
async def _(box: StatusBox) -> None:
    result = ObservedUnit(active=ActiveState.ACTIVATING, sub="auto-restart", result="oom-kill")
    box.give("aeon", result)


def _failed(result: str, **more: int) -> ObservedUnit:
    return ObservedUnit(active=ActiveState.FAILED, sub="failed", result=result, **more)  # type: ignore[arg-type]


for _result in (
    *("start-limit-hit", "signal", "core-dump", "timeout", "watchdog", "resources"),
    *("exit-code", "exec-condition", "oom-kill"),
):

    async def _fail(box: StatusBox, result: str = _result) -> None:
        box.give("aeon", _failed(result, exit_status=7))

    state(f"failed, {_result}")(_fail)


@state("stopped, had to be killed")
async def _(box: StatusBox) -> None:
    killed = replace(_failed("timeout", exit_status=9), was_stopped=True)
    box.give("aeon", replace(killed, changed_s=960.0, stopped_s=955.0))


@state("refused by the gate")
async def _(box: StatusBox) -> None:
    fakes = box.fakes
    fakes.processes.behaviour["aeon"].refusal = "GPU 0 has 3.0 GiB free, needs 14.5 GiB"
    fakes.systemd.stop("aeon")
    await box.drive(5)
    fakes.systemd.start("aeon")
    await box.drive(2)


@state("evicted in vain")
async def _(box: StatusBox) -> None:
    fakes = box.fakes
    fakes.processes.behaviour["genesis"].refusal = "GPU 0 has 3.0 GiB free, needs 14.5 GiB"
    fakes.systemd.start("genesis")
    await box.drive(3)


@state("evicted, not seen yet")
async def _(box: StatusBox) -> None:
    box.give("aeon", ObservedUnit(since_unix_s=900.0, since_s=900.0, stopped_s=950.0))
    box.give("genesis", replace(_failed("signal"), changed_s=960.0, stopped_s=960.0))


@state("repaired")
async def _(box: StatusBox) -> None:
    box.fakes.systemd.start_limit_hit("aeon")
    box.fakes.units.version += 1
    await box.drive(60)


# --- a switch -----------------------------------------------------------------------------


@state("switching, preflight")
async def _(box: StatusBox) -> None:
    box.fakes.host.files_answer.clear()
    await box.ask(Kind.SWITCH, "genesis")


@state("switching, drain")
async def _(box: StatusBox) -> None:
    box.fakes.gateway.drains.clear()
    await box.ask(Kind.SWITCH, "genesis", drain_s=20.0)


@state("switching, stop")
async def _(box: StatusBox) -> None:
    box.fakes.processes.behaviour["aeon"].stop_s = 30.0
    await box.ask(Kind.SWITCH, "genesis")
    await box.drive(4)


@state("switching, release")
async def _(box: StatusBox) -> None:
    box.fakes.processes.behaviour["aeon"].stop_s = 0.0
    await box.ask(Kind.SWITCH, "genesis")
    await box.until(Phase.RELEASE, Phase.START, Phase.LOAD)
    waits = ObservedUnit(active=ActiveState.ACTIVATING, sub="condition", has_job=True)
    box.give("genesis", replace(waits, status_text="waiting for 2.1 GiB on GPU 0"))
    box.fakes.systemd.units["genesis"].due_s = float("inf")
    await box.drive(3)


@state("switching, load")
async def _(box: StatusBox) -> None:
    box.fakes.processes.behaviour["genesis"].load_s = 60.0
    await box.ask(Kind.SWITCH, "genesis")
    await box.drive(20)


@state("switching, warm-up")
async def _(box: StatusBox) -> None:
    box.fakes.backend.hangs.add("genesis")
    await box.ask(Kind.SWITCH, "genesis")
    await box.until(Phase.WARM_UP)


@state("switching, commit")
async def _(box: StatusBox) -> None:
    box.fakes.commitment.takes.clear()
    await box.ask(Kind.SWITCH, "genesis")
    await box.until(Phase.COMMIT)


@state("switching, rolling back")
async def _(box: StatusBox) -> None:
    box.fakes.backend.cold.add("genesis")
    box.fakes.processes.behaviour["aeon"].load_s = 30.0
    await box.ask(Kind.SWITCH, "genesis")
    await box.drive(12)


@state("switching without a gateway")
async def _(box: StatusBox) -> None:
    box.fakes.gateway.away = True
    box.fakes.processes.behaviour["genesis"].load_s = 60.0
    await box.ask(Kind.SWITCH, "genesis")
    await box.drive(5)


@state("switched")
async def _(box: StatusBox) -> None:
    await box.ask(Kind.SWITCH, "genesis")
    await box.until()
    await box.drive(90)


@state("rolled back")
async def _(box: StatusBox) -> None:
    box.fakes.backend.cold.add("genesis")
    await box.ask(Kind.SWITCH, "genesis")
    await box.until()


@state("rolled back in vain")
async def _(box: StatusBox) -> None:
    box.fakes.backend.cold |= {"genesis", "aeon"}
    await box.ask(Kind.SWITCH, "genesis")
    await box.until()


@state("disk full")
async def _(box: StatusBox) -> None:
    box.fakes.commitment.full = True
    await box.ask(Kind.SWITCH, "genesis")
    await box.until()


@state("disk fails at the commit")
async def _(box: StatusBox) -> None:
    box.fakes.commitment.failing = True
    await box.ask(Kind.SWITCH, "genesis")
    await box.until()


@state("switch, undone by hand")
async def _(box: StatusBox) -> None:
    box.fakes.processes.behaviour["genesis"].load_s = 60.0
    await box.ask(Kind.SWITCH, "genesis")
    await box.drive(5)
    box.fakes.systemd.start("aeon")
    await box.until()


def _operation(box: StatusBox, kind: Kind, *names: str, **more: object) -> Operation:
    operation = Operation(
        id=1,
        kind=kind,
        target=names,
        goal=Goal(start=names),
        boot_id="boot-0",
        requested_by="ana",
        began_unix_s=box.fakes.clock.unix_s() - 50,
    )
    return replace(operation, **more)  # type: ignore[arg-type]


@state("cut by a reboot")
async def _(box: StatusBox) -> None:
    box.fakes.store.ended.append(
        Finished(
            operation=_operation(box, Kind.SWITCH, "genesis", phase=Phase.LOAD),
            outcome=Outcome.INTERRUPTED,
            message="cut in load by a reboot",
            finished_unix_s=box.fakes.clock.unix_s() - 9,
        )
    )


def _ended(box: StatusBox, operation: Operation, outcome: Outcome, message: str) -> None:
    finished_s = box.fakes.clock.unix_s() - 40 + operation.id
    ended = Finished(
        operation=operation, outcome=outcome, message=message, finished_unix_s=finished_s
    )
    box.fakes.store.ended.append(ended)


@state("failed repair, serves since")
async def _(box: StatusBox) -> None:
    repair = _operation(box, Kind.REPAIR, "aeon", requested_by="supervisor")
    _ended(box, repair, Outcome.FAILED, "aeon did not start")


@state("refused since the last change")
async def _(box: StatusBox) -> None:
    _ended(box, _operation(box, Kind.SWITCH, "aeon"), Outcome.DONE, "aeon is serving")
    refused = _operation(box, Kind.SWITCH, "genesis", id=2, requested_by="ben")
    _ended(box, refused, Outcome.REFUSED, "needs ≈31 GiB of VRAM, the GPUs have 24")


@state("restarted in vain")
async def _(box: StatusBox) -> None:
    box.fakes.backend.cold.add("aeon")
    await box.ask(Kind.RESTART, "aeon")
    await box.until()


# --- holds and commands -------------------------------------------------------------------


@state("held")
async def _(box: StatusBox) -> None:
    await box.ask(Kind.HOLD, hold_until=FOREVER)
    await box.until()


@state("held for a time")
async def _(box: StatusBox) -> None:
    await box.ask(Kind.HOLD, hold_until=box.fakes.clock.unix_s() + 7200)
    await box.until()
    await box.drive(60)


@state("held by hand")
async def _(box: StatusBox) -> None:
    box.fakes.systemd.start_hold()
    await box.drive(2)


@state("hold over")
async def _(box: StatusBox) -> None:
    await box.ask(Kind.HOLD, hold_until=box.fakes.clock.unix_s() + 30)
    await box.until()
    await box.drive(120)


_CLAIM: Final = "all"


async def _begin_run(box: StatusBox) -> None:
    claim = box.fakes.processes.command.claim
    await box.ask(Kind.RUN, command="python3", claim=claim)


@state("a command waits")
async def _(box: StatusBox) -> None:
    box.fakes.processes.command.wait_s = 60
    await _begin_run(box)
    await box.drive(10)


@state("a command runs")
async def _(box: StatusBox) -> None:
    box.fakes.processes.command.run_s = 900
    await _begin_run(box)
    await box.drive(100)


@state("a command ends")
async def _(box: StatusBox) -> None:
    box.fakes.processes.command.stop_s = 60
    await _begin_run(box)
    await box.drive(30)


@state("a command has run")
async def _(box: StatusBox) -> None:
    await _begin_run(box)
    await box.until()


@state("a command was not begun")
async def _(box: StatusBox) -> None:
    box.fakes.processes.command.problem = "the memory has not come back"
    await _begin_run(box)
    await box.until()


@state("a command of no operation")
async def _(box: StatusBox) -> None:
    runs = ObservedUnit(active=ActiveState.ACTIVE, sub="running", main_pid=77)
    box.fakes.systemd.report(RUN, runs)

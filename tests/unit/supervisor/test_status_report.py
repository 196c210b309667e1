"""The status document of a running supervisor, as a whole."""

from dataclasses import replace

import pytest

from appliance.model.gateway import EngineLoad
from appliance.model.operations import Finished, Goal, Kind, Operation, Outcome
from appliance.model.status import EngineRow, WatchRow
from appliance.model.words import Mark
from appliance.settings.tables import Settings, WatchSettings
from appliance.supervisor.status_report import MOST_SHARE, phase_share, usual_phases_s
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.waiting import settle

pytestmark = pytest.mark.virtual_time

BOX = catalogue(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"))


async def test_the_gateways_figures_stand_beside_the_engines() -> None:
    """Of what serves the engine is asked; a gateway that is away is said to be down."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.backend.loads["aeon"] = EngineLoad(running=1, queued=2, kv_cache=0.25)
    supervisor = fakes.supervisor(FakeProfiles(BOX))
    ledger = fakes.memory_sampler(supervisor.last_look)
    status = fakes.status(supervisor, ledger)
    await status.document()
    await settle()  # the engine's answer
    gateway = (await status.document()).gateway
    assert gateway is not None
    assert (gateway.state, gateway.uptime_s) == ("up", 1.0)
    (aeon,) = gateway.profiles
    assert (aeon.name, aeon.requests) == ("aeon", 0)
    assert aeon.engine == EngineRow(running=1, queued=2, kv_cache=0.25)
    fakes.gateway.away = True
    fakes.systemd.now_s += 5.0
    gateway = (await status.document()).gateway
    assert gateway is not None
    assert gateway.state == "down"


async def test_watches_have_the_mark_that_was_set_last() -> None:
    """The settings give the first mark only."""
    fakes = FakePorts(BOX, "aeon")
    watches = tuple(WatchSettings(name=name, unit=f"{name}.service") for name in ("nas", "backup"))
    supervisor = fakes.supervisor(FakeProfiles(BOX), settings=Settings(watch=watches))
    status = fakes.status(supervisor, fakes.memory_sampler(supervisor.last_look))
    await supervisor.mark("nas", Mark.RETIRED, by="test")
    assert (await status.document()).watches == [
        WatchRow(name="backup", mark="live"),
        WatchRow(name="nas", mark="retired"),
    ]


async def test_damaged_files_are_told_until_they_are_whole() -> None:
    """Root reads first what is wrong with the manifest and with the gateway's file."""
    fakes = FakePorts(BOX, "aeon")
    profiles = FakeProfiles(BOX, damage="the manifest is damaged")
    supervisor = fakes.supervisor(profiles)
    ledger = fakes.memory_sampler(supervisor.last_look)
    found: list[str | None] = ["gateway.json is damaged", None]
    status = fakes.status(supervisor, ledger, gateway_damage=lambda: found.pop(0))
    why = (await status.document()).verdict.why
    assert why[:2] == ["the manifest is damaged", "gateway.json is damaged"]
    profiles.damage = None
    supervisor.reload()
    again = (await status.document()).verdict.why
    assert again == why[2:]


@pytest.mark.parametrize("step_s", [-40_000.0, 40_000.0])
async def test_ages_do_not_follow_a_clock_that_is_set(step_s: float) -> None:
    """Ages in seconds stay right after the wall clock has jumped by half a day."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    began_s = fakes.clock.monotonic_s()
    operation = Operation(
        id=1,
        kind=Kind.SWITCH,
        target=("aeon",),
        goal=Goal(),
        boot_id=fakes.units.boot_id,
        requested_by="ana",
        began_unix_s=began_s,
        began_s=began_s,
    )
    supervisor = fakes.supervisor(FakeProfiles(BOX))
    ledger = fakes.memory_sampler(supervisor.last_look)
    status = fakes.status(supervisor, ledger)
    await ledger.latest()
    await ledger.turn()
    fakes.systemd.now_s += 2.0
    last = Finished(
        operation=operation,
        outcome=Outcome.DONE,
        message="aeon is serving",
        finished_unix_s=fakes.clock.unix_s(),
        finished_s=fakes.clock.monotonic_s(),
    )
    fakes.store.ended.append(last)
    fakes.clock.step_s = step_s
    fakes.systemd.now_s += 3.0
    document = await status.document()
    assert document.memory is not None
    assert document.last_operation is not None
    assert document.memory.sampled_age_s == 5.0
    assert document.last_operation.age_s == 3.0
    assert document.last_operation.ms == 2000.0
    since_s = fakes.systemd.observed(BOX).unit("aeon").since_s
    assert document.profiles[0].uptime_s == fakes.clock.monotonic_s() - since_s
    # An operation of another boot has nothing but the wall clock.
    fakes.systemd.boots = 2
    after_boot = (await status.document()).last_operation
    assert after_boot is not None
    assert after_boot.age_s == max(0.0, 3.0 + step_s)


async def test_a_stop_by_hand_is_told_after_other_operations() -> None:
    """A profile that somebody stopped during a hold is said to be stopped by hand after the hold and a failed switch."""
    fakes = FakePorts(BOX, "aeon")
    await fakes.commitment.set_hold(fakes.clock.unix_s())
    supervisor = fakes.supervisor(FakeProfiles(BOX))
    status = fakes.status(supervisor, fakes.memory_sampler(supervisor.last_look))
    fakes.systemd.now_s += 10.0
    told = []
    for number, (kind, name, outcome) in enumerate(
        ((Kind.HOLD, "", Outcome.DONE), (Kind.STOP, "aeon", Outcome.DONE)), start=1
    ):
        fakes.store.ended.append(ended(fakes, number, kind, name, outcome))
        told.append((await status.document()).profiles[0].note)
    failed = ended(fakes, 3, Kind.SWITCH, "genesis", Outcome.FAILED)
    fakes.store.ended.append(failed)
    told.append((await status.document()).profiles[0].note)
    assert told == [None, "stopped by hand", "stopped by hand"]


def ended(fakes: FakePorts, number: int, kind: Kind, name: str, outcome: Outcome) -> Finished:
    """An operation of this boot that is over now."""
    operation = Operation(
        id=number,
        kind=kind,
        target=(name,) if name else (),
        goal=Goal(),
        boot_id=fakes.units.boot_id,
        requested_by="ana",
        began_unix_s=fakes.clock.unix_s(),
        began_s=fakes.clock.monotonic_s(),
    )
    return Finished(
        operation=operation,
        outcome=outcome,
        message="",
        finished_unix_s=fakes.clock.unix_s(),
        finished_s=fakes.clock.monotonic_s(),
    )


SWITCH = Operation(
    id=9,
    kind=Kind.SWITCH,
    target=("aeon",),
    goal=Goal(),
    boot_id="b",
    requested_by="ana",
    began_unix_s=0.0,
    began_s=0.0,
)


def over(load_ms: float, outcome: Outcome = Outcome.DONE, target: str = "aeon") -> Finished:
    operation = replace(SWITCH, id=1, target=(target,), kind=Kind.START)
    phases = {"load": load_ms, "roll-back load": 1.0}
    return Finished(
        operation=operation, outcome=outcome, message="", finished_unix_s=1.0, phases_ms=phases
    )


def test_usual_is_the_median_of_the_last_times() -> None:
    """Of the same target, whatever brought it up; what failed or is long ago does not count."""
    found = [
        over(90_000, Outcome.FAILED),
        over(50_000),
        over(3_000, target="mini"),
        over(48_000),
        *(over(46_000) for _ in range(3)),
        *(over(1_000) for _ in range(20)),
    ]
    assert usual_phases_s(found, SWITCH)["load"] == 46.0
    itself = replace(over(5_000), operation=SWITCH)
    assert usual_phases_s([itself], SWITCH) == {}


@pytest.mark.parametrize(
    ("phase_s", "usual_s", "share"),
    [
        (0.0, 40.0, 0.0),
        (10.0, 40.0, 0.25),
        (90.0, 40.0, MOST_SHARE),
        (1.0, None, None),
        (1.0, 0.4, None),
    ],
)
def test_a_share_never_says_that_it_is_over(
    phase_s: float, usual_s: float | None, share: float | None
) -> None:
    """A phase that lasts longer than usual still runs; a short one needs no share."""
    assert phase_share(phase_s, usual_s) == share

"""Rules about listeners and loopback filters."""

from typing import Any

import pytest

from appliance.alerts.snapshot import GpuHolder
from appliance.model.alerts import AlertRule, Sign
from appliance.model.status import OperationRow
from appliance.model.words import Mark
from appliance.wire.helpers import Listener
from tests.fakes.looks import (
    CARD,
    GIB,
    box_look,
    gpu_look,
    later,
    looked,
    of_rule,
    profile_look,
    signs_of,
    unit_look,
)

UNIT = "appliance-backend-genesis.service"
GOOD, BAD, UNKNOWN = Sign.GOOD, Sign.BAD, Sign.UNKNOWN


def listener(**changes: Any) -> Listener:
    address = "0.0.0.0"  # noqa: S104 - what a backend must not do
    one = Listener(address=address, port=8022, pid=4121, process="vllm", unit=UNIT)
    return one.replaced(**changes)


@pytest.mark.parametrize(
    ("listeners", "genesis", "box"),
    [
        (None, UNKNOWN, UNKNOWN),
        ((), GOOD, GOOD),
        ((listener(),), BAD, GOOD),
        ((listener(address="::"),), BAD, GOOD),
        ((listener(address="127.0.0.1", is_reachable=False),), GOOD, GOOD),
        ((listener(unit="", process="python3"),), GOOD, BAD),
        ((listener(unit="ollama.service"),), GOOD, BAD),
        ((listener(unit="appliance-backend-removed.service"),), GOOD, BAD),
        ((listener(), listener(unit="")), BAD, BAD),
    ],
)
def test_listener_beyond_loopback_is_exposed(
    listeners: tuple[Listener, ...] | None, genesis: Sign, box: Sign
) -> None:
    """A backend's is its profile's, that of another holder of GPU memory the box's."""
    found = looked([box_look(listeners=listeners)])
    assert signs_of(found, AlertRule.EXPOSED) == {"profile:genesis": genesis, "box": box}


@pytest.mark.parametrize(
    ("mark", "genesis", "box"),
    [
        (Mark.LIVE, BAD, GOOD),
        (None, BAD, GOOD),
        (Mark.STANDBY, BAD, GOOD),
        (Mark.RETIRED, UNKNOWN, BAD),
    ],
)
def test_exposure_of_a_retired_profile_is_the_box_s(
    mark: Mark | None, genesis: Sign, box: Sign
) -> None:
    """A port that is open to everybody is told, though nobody is told of its profile."""
    found = looked([box_look(profile_look(mark=mark), listeners=(listener(),))])
    assert signs_of(found, AlertRule.EXPOSED) == {"profile:genesis": genesis, "box": box}


def test_words_of_an_exposed_backend() -> None:
    """The fact names program and address, the details each listener and what the filter does."""
    six = listener(address="::", port=9000, pid=4122, process="ray")
    look = box_look(listeners=(listener(), six))
    one = of_rule(looked([look]), AlertRule.EXPOSED)["profile:genesis"]
    assert one.fact == "exposed: vllm listens on 0.0.0.0:8022"
    assert one.details == (
        f"0.0.0.0:8022: vllm (pid 4121, {UNIT})",
        f"[::]:9000: ray (pid 4122, {UNIT})",
        "the filter of its unit still keeps other machines out",
    )
    assert one.command == "appliance show genesis"
    many = box_look(listeners=tuple(listener(port=port) for port in range(9000, 9010)))
    crowd = of_rule(looked([many]), AlertRule.EXPOSED)["profile:genesis"]
    assert len(crowd.details) == 4
    foreign = box_look(listeners=(listener(unit=""),))
    other = of_rule(looked([foreign]), AlertRule.EXPOSED)["box"]
    assert (other.details, other.command) == (("0.0.0.0:8022: vllm (pid 4121)",), "ps -fp 4121")


@pytest.mark.parametrize("unit", [None, unit_look(UNIT, is_filtered=None)])
def test_nothing_is_said_of_a_filter_that_is_not_known(unit: Any) -> None:
    """Only a filter that is enforced keeps others out."""
    look = box_look(profile_look(unit=unit), listeners=(listener(),))
    one = of_rule(looked([look]), AlertRule.EXPOSED)["profile:genesis"]
    assert len(one.details) == 1


@pytest.mark.parametrize(
    ("genesis", "aeon", "sign"),
    [
        (True, True, GOOD),
        (True, None, GOOD),
        (None, None, UNKNOWN),
        (False, None, BAD),
        (True, False, BAD),
    ],
)
def test_filter_that_is_not_enforced_is_told_once(
    *, genesis: bool | None, aeon: bool | None, sign: Sign
) -> None:
    """The kernel enforces the filters of all backends that run, or the box is told."""
    profiles = [
        profile_look(name, unit=unit_look(f"appliance-backend-{name}.service", is_filtered=on))
        for name, on in (("genesis", genesis), ("aeon", aeon))
    ]
    found = signs_of(looked([box_look(*profiles)]), AlertRule.FILTER_OFF)
    assert found == {"box": sign}


def test_words_of_a_filter_that_is_off() -> None:
    """The fact names the backends, the command shows the counter."""
    unit = unit_look(UNIT, is_filtered=False)
    look = box_look(profile_look(unit=unit), profile_look("aeon", unit=None))
    one = of_rule(looked([look]), AlertRule.FILTER_OFF)["box"]
    assert one.fact == "loopback filter not enforced: genesis"
    assert one.command == "systemctl show -p IPEgressBytes appliance-backend-genesis"
    names = [f"p{number}" for number in range(5)]
    units = [unit_look(f"appliance-backend-{name}.service", is_filtered=False) for name in names]
    five = [profile_look(name, unit=unit) for name, unit in zip(names, units, strict=True)]
    found = of_rule(looked([box_look(*five)]), AlertRule.FILTER_OFF)["box"]
    assert found.fact == "loopback filter not enforced: p0, p1 and p2"


LOAD = OperationRow(
    id=9, kind="start", target=("a",), profiles=("a",), phase="load", phase_s=1.0, deadline_s=None
)


def holder(held: int | None, name: str = "python3", pid: int = 4121) -> GpuHolder:
    return GpuHolder(pid=pid, name=name, user="ana", held_bytes=held)


@pytest.mark.parametrize(
    ("holders", "sign"),
    [
        ((), GOOD),
        (None, UNKNOWN),
        ((holder(255 << 20),), GOOD),
        ((holder(256 << 20),), BAD),
        ((holder(9 * GIB, "Xorg"),), GOOD),
        ((holder(9 * GIB, "gnome-shell"), holder(9 * GIB)), BAD),
        ((holder(None),), UNKNOWN),
        ((holder(None), holder(GIB, pid=7)), BAD),
    ],
)
def test_process_of_no_profile_is_a_foreign_holder(
    holders: tuple[GpuHolder, ...] | None, sign: Sign
) -> None:
    """A process with 256 MiB or more is told, unless it draws."""
    found = looked([box_look(gpus=(gpu_look(holders=holders),))])
    assert signs_of(found, AlertRule.FOREIGN_HOLDER) == {"box": sign}


@pytest.mark.parametrize("changes", [{"hold": True}, {"operation": LOAD}])
def test_memory_is_foreign_only_at_rest(changes: dict[str, Any]) -> None:
    """A hold is for foreign work, and an operation moves memory."""
    gpus = (gpu_look(holders=(holder(GIB),), unattributed_bytes=9 * GIB),)
    found = looked([box_look(gpus=gpus, **changes)])
    assert signs_of(found, AlertRule.FOREIGN_HOLDER) == {"box": UNKNOWN}
    assert signs_of(found, AlertRule.UNATTRIBUTED) == {f"gpu:{CARD}": UNKNOWN}


@pytest.mark.parametrize(
    ("mark", "desired", "held", "sign"),
    [
        (Mark.RETIRED, False, 14 * GIB, BAD),
        (Mark.RETIRED, False, 256 << 20, BAD),
        (Mark.RETIRED, False, 1 << 20, GOOD),
        (Mark.RETIRED, False, None, GOOD),
        (Mark.RETIRED, True, 14 * GIB, GOOD),  # somebody committed it
        (Mark.RETIRED, None, 14 * GIB, GOOD),
        (Mark.STANDBY, False, 14 * GIB, GOOD),
        (Mark.LIVE, False, 14 * GIB, GOOD),
        (None, False, 14 * GIB, GOOD),
    ],
)
def test_retired_leftover_is_told_of_the_box(
    mark: Mark | None, held: int | None, sign: Sign, *, desired: bool | None
) -> None:
    """A retired profile that should not run and holds memory is a foreign holder."""
    profile = profile_look("oldmix", mark=mark, desired=desired, held_bytes=held)
    found = looked([box_look(profile)])
    assert signs_of(found, AlertRule.FOREIGN_HOLDER) == {"box": sign}
    blind = signs_of(looked([box_look(profile, gpus=None)]), AlertRule.FOREIGN_HOLDER)
    assert blind == {"box": BAD if sign is BAD else UNKNOWN}


def test_words_of_foreign_holders() -> None:
    """A process is counted over all GPUs; the largest is in the fact."""
    first = gpu_look(holders=(holder(2 * GIB), holder(5 * GIB, "ollama", 7)))
    second = gpu_look(uuid="GPU-2", index=1, holders=(holder(7 * GIB),))
    retired = profile_look("oldmix", mark=Mark.RETIRED, desired=False, held_bytes=GIB)
    small = gpu_look(uuid="GPU-3", index=2, holders=(holder(GIB >> 1, "blender", 8),))
    look = box_look(retired, gpus=(first, second, small))
    one = of_rule(looked([look]), AlertRule.FOREIGN_HOLDER)["box"]
    assert one.fact == "GPU memory held: 9.0 GiB by python3 (pid 4121, user ana)"
    assert one.details == (
        "also 5.0 GiB by ollama (pid 7, user ana)",
        "also 512 MiB by blender (pid 8, user ana)",
    )
    assert one.command == "ps -o user,lstart,args -p 4121"
    alone = of_rule(looked([box_look(retired, gpus=())]), AlertRule.FOREIGN_HOLDER)["box"]
    assert alone.command == "appliance stop oldmix"


@pytest.mark.parametrize(
    ("held", "sign"), [(GIB, BAD), (GIB - 1, GOOD), (0, GOOD), (None, UNKNOWN)]
)
def test_memory_of_no_process_is_told(held: int | None, sign: Sign) -> None:
    """A GiB that no process accounts for is told of its GPU."""
    look = box_look(gpus=(gpu_look(unattributed_bytes=held),))
    one = of_rule(looked([look]), AlertRule.UNATTRIBUTED)[f"gpu:{CARD}"]
    assert one.sign is sign
    if sign is BAD:
        assert one.fact == "1.0 GiB of memory that no process accounts for (GPU 0)"
        assert (one.details, one.command) == (("RTX 3090",), "sudo fuser -v /dev/nvidia0")


def test_memory_of_a_gpu_without_uuid_is_that_of_its_index() -> None:
    """A GPU that no longer tells its UUID keeps its subject."""
    bare = later(box_look(gpus=(gpu_look(uuid="", unattributed_bytes=GIB),)), 30)
    signs = signs_of(looked([box_look(), bare]), AlertRule.UNATTRIBUTED)
    assert signs == {f"gpu:{CARD}": BAD}

"""Whether a model that answers is where its profile says."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from appliance.model.memory import GroupMemory, Holder
from appliance.model.names import unit_of
from appliance.switch.admission.findings import BoxFacts
from appliance.switch.placement import misplaced, unlocked
from tests.fakes.gpu_readings import by_index, card
from tests.fakes.profiles import applied

GIB = 1 << 30
MIB = 1 << 20
ALL = applied("a", "gpu-all")
RIGHT = applied("a", "gpu-1")
SHARED = replace(applied("a"), gpus=(1,))
MINI = replace(applied("mini", "cpu"), locks_memory=True)
SPLIT = replace(applied("split", "gpu-0"), locks_memory=True)


def on(*units: str) -> Sequence[Holder]:
    return [Holder(pid=1, held_bytes=1, comm="x", user="x", unit=unit) for unit in units]


def box(holders: Mapping[int, Sequence[Holder]]) -> BoxFacts:
    return BoxFacts(
        ram_total_bytes=GIB, devices=by_index(*(card(i, holders.get(i)) for i in (0, 1)))
    )


OWN = unit_of("a")


@pytest.mark.parametrize(
    ("profile", "holders", "problem"),
    [
        (ALL, {0: on(OWN), 1: on()}, None),
        (ALL, {0: on(), 1: on()}, "on no GPU"),
        (ALL, {0: on("other.service"), 1: on()}, "on no GPU"),
        (RIGHT, {0: on("other.service"), 1: on(OWN)}, None),
        (RIGHT, {0: on(OWN), 1: on(OWN)}, "on GPU 0, which its profile does not list"),
        (SHARED, {0: on(), 1: on()}, "on no GPU"),
        (RIGHT, {0: on(OWN)}, None),
        (RIGHT, {}, None),
        (MINI, {0: on(), 1: on()}, None),
    ],
)
def test_model_on_the_wrong_device(
    profile: object, holders: Mapping[int, Sequence[Holder]], problem: str | None
) -> None:
    """Said only where every GPU's processes are known."""
    assert isinstance(profile, type(ALL))
    said = misplaced(profile, box(holders))
    assert said == problem if problem is None or said is None else problem in said


def group(resident: int, locked: int) -> GroupMemory:
    return GroupMemory(resident_bytes=resident, locked_bytes=locked, pinned_bytes=locked, pids=(1,))


@pytest.mark.parametrize(
    ("resident", "locked", "model", "amount"),
    [
        (20 * GIB, 0, 18 * GIB, "0.0 of 18.0 GiB"),
        (20 * GIB, 18 * GIB, 18 * GIB, None),
        (40 * GIB, 18 * GIB, 18 * GIB, None),
        (20 * GIB, 8 * GIB, 18 * GIB, "8.0 of 18.0 GiB"),
        (4 * GIB, 3 * GIB, 18 * GIB, None),
        (20 * GIB, 8 * MIB, None, "0.0 of 20.0 GiB"),
        (20 * GIB, 500 * MIB, None, None),
        (4 * MIB, 0, None, None),
        (0, 0, 18 * GIB, None),
    ],
)
def test_model_that_is_not_locked(
    resident: int, locked: int, model: int | None, amount: str | None
) -> None:
    """Far less locked than the model's file that is in memory; unknown files are given room."""
    said = unlocked(MINI, group(resident, locked), model_bytes=model)
    assert said is None if amount is None else said is not None
    if said is not None:
        assert f"mini answers, but its memory is not locked ({amount})" in said
        assert "LimitMEMLOCK" in said


def test_model_that_is_partly_on_gpus() -> None:
    """The part of the file in main memory is not known: only a refusal is reported."""
    some, none = group(20 * GIB, GIB), group(20 * GIB, 64 << 10)
    assert unlocked(SPLIT, some, model_bytes=18 * GIB) is None
    assert unlocked(SPLIT, none, model_bytes=18 * GIB) is not None


def test_memory_that_need_not_be_locked() -> None:
    """No profile that does not lock, or is without figures, is reported."""
    assert unlocked(ALL, group(GIB, 0), model_bytes=GIB) is None
    assert unlocked(MINI, None, model_bytes=GIB) is None

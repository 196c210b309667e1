"""VRAM that comes back late, or never: a start waits for it, or says who has it."""

import threading
import time

import pytest

from tests.pretend import GIB, Gpus
from tests.system.fleet import Answer, Fleet
from tests.system.observer import Observer


@pytest.fixture
def gpus(shared_gpus: Gpus) -> Gpus:
    """The two GPUs of the box."""
    return shared_gpus


@pytest.fixture
def fleet(shared_gpu_fleet: Fleet) -> Fleet:
    """A box with two profiles that each fill most of both GPUs, a serving."""
    return shared_gpu_fleet


def progress(answer: Answer, phase: str) -> list[str]:
    """Return the operator's progress texts of a phase."""
    return [e["text"] for e in answer.events if e["event"] == "phase" and e["phase"] == phase]


def holders(gpus: Gpus) -> set[int]:
    """Processes with VRAM, as the box numbers them."""
    return {hold.own_pid for hold in gpus.holds() if hold.alive}


def test_late_release_is_waited_for(fleet: Fleet, gpus: Gpus) -> None:
    """Memory that comes back 1.5 s late costs 1.5 s, and the operator sees it shrink."""
    gpus.release_after(1.5)
    answer = fleet.switch("b")
    assert answer.result["phases_ms"]["release"] >= 1500
    assert any("→" in text for text in progress(answer, "release")), progress(answer, "release")
    assert holders(gpus) == {fleet.main_pid("b")}
    assert gpus.held_bytes() == 24 * GIB


def test_memory_that_never_comes_back_is_refused_in_bytes(fleet: Fleet, gpus: Gpus) -> None:
    """At the deadline the switch fails with what no process accounts for, on both GPUs."""
    fleet.gpu_profile("a", 9001, release="2s")
    fleet.gpu_profile("b", 9002, release="2s")
    fleet.apply()
    gpus.release_after(None)
    answer = fleet.cli("switch", "b")
    assert answer.exit == 11, answer
    message = answer.result["message"]
    assert "12.0 GiB that no visible process accounts for" in message
    assert "roll-back failed: a did not start" in message
    assert fleet.active() == []
    for hold in gpus.holds():
        gpus.forget(hold)
    gpus.release_after(0)
    assert fleet.switch("b").exit == 0


def test_ghost_is_named_with_its_bytes(fleet: Fleet, gpus: Gpus) -> None:
    """A dead process that the driver still lists is named, and told from the rest."""
    fleet.gpu_profile("b", 9002, release="2s")
    fleet.apply()
    ghost = fleet.main_pid("a")
    gpus.change({"*.ghosts": 1})
    gpus.release_after(None)
    message = fleet.cli("switch", "b", "--no-rollback").result["message"]
    assert f"a process that has ended (pid {ghost}, 12.0 GiB)" in message


def test_holder_that_appears_meanwhile_is_named_and_the_old_model_restored(
    fleet: Fleet, gpus: Gpus
) -> None:
    """A foreign process that takes memory during the switch is named; the old model comes back."""
    fleet.gpu_profile("small", 9003, gib=8.0, gpus=(0,))
    fleet.gpu_profile("b", 9002, release="4s")
    fleet.apply()
    fleet.switch("small")
    gpus.release_after(1.5)
    answers: list[Answer] = []
    switching = threading.Thread(target=lambda: answers.append(fleet.cli("switch", "b")))
    switching.start()
    fleet.box.wait_for("! systemctl is-active appliance-backend-small.service")
    pid = fleet.foreign_holder("miner", "1:6")
    switching.join()
    (answer,) = answers
    assert answer.exit == 10, answer
    message = answer.result["message"]
    assert f"(pid {pid}, miner.service, user bob, 6.0 GiB)" in message
    assert answer.result["restored"] == ["small"]
    assert fleet.active() == ["small"]


def test_a_set_is_switched_to_and_back(fleet: Fleet, gpus: Gpus) -> None:
    """A profile on each GPU is one operation, and `switch -` brings the whole set back that another replaced."""
    for number, name in enumerate("cd"):
        fleet.gpu_profile(name, 9003 + number, gib=8.0, gpus=(number,))
    fleet.apply()
    answer = fleet.cli("switch", "c", "d")
    assert (answer.exit, answer.result["target"]) == (0, ["c", "d"]), answer
    assert fleet.committed() == fleet.active() == ["c", "d"]
    assert holders(gpus) == {fleet.main_pid("c"), fleet.main_pid("d")}
    fleet.switch("a")
    assert fleet.active() == ["a"]
    assert fleet.cli("switch", "-").exit == 0
    assert fleet.committed() == fleet.active() == ["c", "d"]


def test_two_rivals_started_at_once_end_with_one_owner(fleet: Fleet, gpus: Gpus) -> None:
    """Of two rivals that are started by hand at the same moment at most one ever has memory."""
    fleet.gpu_profile("c", 9003)
    fleet.apply()
    gpus.release_after(0.7)
    with Observer(fleet.box) as seen:
        fleet.box.run(
            "systemctl start --no-block appliance-backend-b.service;"
            " systemctl start --no-block appliance-backend-c.service"
        )
        time.sleep(6)
    assert seen.samples > 20
    assert seen.together == set()
    (winner,) = fleet.active()
    assert winner in {"b", "c"}
    assert holders(gpus) == {fleet.main_pid(winner)}


@pytest.mark.parametrize("cut", [False, True], ids=["reboot", "power-cut"])
def test_boot_starts_the_committed_model_on_empty_gpus(
    fleet: Fleet, gpus: Gpus, *, cut: bool
) -> None:
    """A boot finds the GPUs empty whatever was stuck before it."""
    gpus.release_after(None)
    fleet.box.power_cut() if cut else fleet.box.reboot()
    fleet.wait_serving("a")
    assert holders(gpus) == {fleet.main_pid("a")}
    assert gpus.held_bytes() == 24 * GIB


def test_hung_start_that_ignores_sigterm_is_killed_with_its_workers(
    fleet: Fleet, gpus: Gpus
) -> None:
    """A start that hangs costs its no-progress deadline, not the stop deadline on top."""
    deadlines = '[deadlines]\nno_progress = "2s"\nstop = "8s"\nrelease = "20s"\n'
    argv = ("--ignore-term", "--hang", "--workers", "1", "--worker-vram", "0:8")
    top = 'gpus = "all"\nneed = { vram = "8GiB" }'
    fleet.profile("hung", 9003, *argv, top=top, tables=deadlines)
    fleet.apply()
    answer = fleet.cli("switch", "hung")
    assert answer.exit == 10, answer
    assert "no progress until the deadline" in answer.result["message"]
    log = fleet.box.journal("-u", "appliance-backend-hung")
    assert "start operation timed out. Killing" in log
    assert "stop-sigterm" not in log
    assert holders(gpus) == {fleet.main_pid("a")}
    assert gpus.held_bytes() == 24 * GIB

"""Reboots and power cuts, also in mid-switch: one owner at every moment, the committed one soon.

Every profile carries a stray Wants= that would start it at boot; the state directory is on a
disk that loses what was not synced.
"""

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from tests.system.fleet import Fleet
from tests.system.observer import Observer
from tests.system.rig import Box, Image, RigError

NAMES = ("a", "b", "c")
CONVERGES_WITHIN_S = 10.0
BOOTS = int(os.environ.get("APPLIANCE_TESTS_BOOTS", "8"))
"""Boots of the first test; `make boots` has it do twenty and more."""
SEED = int(os.environ.get("APPLIANCE_TESTS_SEED", "1"))


@pytest.fixture
def strayed(image: Image) -> Iterator[Fleet]:
    """A box whose three rival profiles are all wanted by the boot target, a committed."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        for number, name in enumerate(NAMES):
            fleet.profile(name, 9001 + number, "--delay", "0.2")
        fleet.apply()
        fleet.switch("a")
        wants = "/etc/systemd/system/multi-user.target.wants"
        for name in NAMES:
            unit = f"appliance-backend-{name}.service"
            box.run(f"mkdir -p {wants}; ln -s ../{unit} {wants}/{unit}")
        box.run("sync")
        yield fleet


@pytest.mark.timeout(60 + 20 * BOOTS)
def test_boots_have_one_owner_and_the_committed_one(strayed: Fleet) -> None:
    """Reboots and power cuts, by turns, at random moments of random switches."""
    rng = random.Random(SEED)  # noqa: S311 - the moments of the cuts
    with Observer(strayed.box) as observer:
        for boot in range(BOOTS):
            target = rng.choice(NAMES)
            before = strayed.committed()
            switching = threading.Thread(target=try_switch, args=(strayed, target))
            switching.start()
            time.sleep(rng.uniform(0.0, 0.9))
            if boot % 2:
                strayed.box.power_cut()
            else:
                strayed.box.reboot()
            switching.join()
            after = strayed.committed()
            assert after in ([target], before)
            assert strayed.wait_serving(*after, timeout_s=CONVERGES_WITHIN_S) < CONVERGES_WITHIN_S
    assert observer.together == set()
    assert observer.samples > 25 * BOOTS


def try_switch(fleet: Fleet, name: str) -> None:
    """A switch that may be cut by the box's end."""
    try:
        fleet.cli("switch", name, timeout_s=30)
    except (RigError, IndexError, ValueError, FileNotFoundError, subprocess.TimeoutExpired):
        return


def test_committed_switch_survives_a_power_cut(strayed: Fleet) -> None:
    """Once the command has said that it is done, no power cut brings the old model back."""
    for name in ("b", "c", "a"):
        strayed.switch(name)
        strayed.box.power_cut()
        assert strayed.committed() == [name]
        strayed.wait_serving(name, timeout_s=CONVERGES_WITHIN_S)


def test_reboot_in_mid_switch_does_not_wait_for_the_model(strayed: Fleet) -> None:
    """A model that would load for a minute does not hold a reboot up, nor start during it."""
    strayed.profile("slow", 9009, "--delay", "60")
    strayed.apply()
    strayed.cli("switch", "slow", "--no-wait")
    strayed.box.wait_for("pgrep -f 'engine.py 9009'")
    began = time.monotonic()
    strayed.box.reboot()
    assert time.monotonic() - began < 10
    assert strayed.committed() == ["a"]
    strayed.wait_serving("a", timeout_s=CONVERGES_WITHIN_S)
    last = strayed.status()["last_operation"]
    assert (last["target"], last["outcome"]) == (["slow"], "interrupted")


def test_observer_sees_two_owners(strayed: Fleet) -> None:
    """The check can fail: with every lock taken out, two engines do run together."""
    for name in NAMES:
        unit = f"appliance-backend-{name}.service"
        text = (strayed.box.root / "etc/systemd/system" / unit).read_text()
        command = text.partition(" -- ")[2].splitlines()[0]
        strayed.box.write(
            f"/etc/systemd/system/bare-{name}.service", f"[Service]\nExecStart={command}\n"
        )
    strayed.box.run("systemctl daemon-reload")
    with Observer(strayed.box) as observer:
        strayed.box.run("systemctl start bare-b bare-c")
        time.sleep(1.0)
    assert observer.together

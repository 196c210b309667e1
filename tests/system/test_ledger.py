"""Ledger of the supervisor, as seen from outside."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box, Image

GIB = 1 << 30
NEEDS = "/var/lib/appliance/needs"


@pytest.fixture(scope="module")
def shared(gpu_image: Image) -> Iterator[Fleet]:
    """A box whose profile a takes 6 GiB, 4 of them on the second GPU, and declares 20."""
    with Box(gpu_image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        box.write("/etc/appliance/appliance.toml", '[memory]\nsample_every_s = "1s"\n')
        fleet.gpu_profile("a", 9001, "--vram", "1:2", gib=4, need=20)
        fleet.apply()
        fleet.keep()
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    """Shared box, on which no model runs and none ran before."""
    shared.restore(None)
    supervisor = "appliance-supervisor.service"
    shared.box.run(f"systemctl stop {supervisor}; rm -rf {NEEDS}; systemctl start {supervisor}")
    return shared


def recorded(fleet: Fleet, name: str, *, timeout_s: float = 30.0) -> Mapping[str, Any]:
    """The file of a profile's peak, once there is one."""
    fleet.box.wait_for(f"test -s {NEEDS}/{name}.json", timeout_s=timeout_s)
    document: Mapping[str, Any] = json.loads(fleet.box.run(f"cat {NEEDS}/{name}.json").stdout)
    return document


def need_of(fleet: Fleet, name: str) -> Mapping[str, Any]:
    """Return the need that `appliance show` prints."""
    document = json.loads(fleet.box.run("appliance", "show", name, "--json").stdout)
    need: Mapping[str, Any] = document["need"]
    return need


def test_what_a_backend_took_is_what_it_needs(fleet: Fleet) -> None:
    """The peak of what served is kept, GPU by GPU, and counts instead of what was declared."""
    assert need_of(fleet, "a")["vram"]["source"] == "declared"
    fleet.switch("a")
    peak = recorded(fleet, "a")["peak"]
    assert sorted(peak["gpus"].values()) == [2 * GIB, 4 * GIB]
    assert 5 << 20 < peak["ram_bytes"] < 500 << 20
    need = need_of(fleet, "a")
    assert need["vram"]["source"] == "observed"
    assert need["vram"]["bytes"] == 7 * GIB
    assert fleet.box.run(f"stat -c %U:%a {NEEDS}/a.json").stdout.strip() == "appliance:644"


def test_an_edited_profile_begins_anew(fleet: Fleet) -> None:
    """Applied under a running model, an edit makes the peak count no longer until it ran."""
    fleet.switch("a")
    fingerprint = recorded(fleet, "a")["fingerprint"]
    fleet.gpu_profile("a", 9001, gib=8, need=20)
    fleet.apply()
    assert need_of(fleet, "a")["vram"]["source"] == "declared"
    time.sleep(4)
    assert recorded(fleet, "a")["fingerprint"] == fingerprint
    fleet.box.run("systemctl restart appliance-backend-a")
    deadline = time.monotonic() + 30
    while (seen := recorded(fleet, "a"))["fingerprint"] == fingerprint:
        assert time.monotonic() < deadline, seen
        time.sleep(0.5)
    assert list(seen["peak"]["gpus"].values()) == [4 * GIB, 4 * GIB]


def test_status_names_every_holder(fleet: Fleet) -> None:
    """A profile by its name, others by command and pid, on the GPUs where they are."""
    fleet.switch("a")
    stranger = fleet.foreign_holder("stranger", "0:3")
    deadline = time.monotonic() + 10
    while f"({stranger})" not in (screen := fleet.box.run("appliance status").stdout):
        assert time.monotonic() < deadline, screen
        time.sleep(0.2)
    lines = [line.split("GiB", 1)[1].strip() for line in screen.splitlines() if "VRAM" in line]
    assert lines == [f"python3({stranger}) 3.0 · a 2.0", "a 4.0"]
    row = fleet.status()
    (holder,) = [h for h in row["memory"]["gpus"][0]["holders"] if h["profile"] is None]
    assert holder["unit"] == "stranger.service"
    assert holder["user"] == "bob"
    (profile,) = row["profiles"]
    assert profile["memory"]["vram_bytes"] == 6 * GIB


def test_a_full_disk_costs_the_record_and_nothing_else(fleet: Fleet) -> None:
    """Without room for it the peak is lost, one line says so, and the model serves."""
    fleet.box.run(f"rm -rf {NEEDS}; touch {NEEDS}")
    fleet.switch("a")
    deadline = time.monotonic() + 30
    while "the observed peak of a could not be written" not in (said := fleet.box.journal("-n200")):
        assert time.monotonic() < deadline, said
        time.sleep(0.5)
    assert fleet.active() == ["a"]
    assert fleet.box.run("appliance status").returncode == 0

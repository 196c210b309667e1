"""Clients that never stop asking at one address, while what is behind it and before it changes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.system.fleet import Fleet
from tests.system.rig import Box, Image

PORT = 8010
GATEWAY = "appliance-gateway.service"
PROGRAM = "/usr/local/lib/traffic.py"
CLIENTS = 8
SWITCHES = 20
RESTARTS = 5
KILLS = 3


@dataclass(slots=True)
class Traffic:
    """Traffic of clients: their answers, once they have ended."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    answered_by: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    slowest_s: float = 0.0


@contextmanager
def traffic(box: Box) -> Iterator[Traffic]:
    """Eight clients ask, four of them for streams, from here to the end of the block."""
    box.write(PROGRAM, (Path(__file__).parent / "traffic.py").read_text(encoding="utf-8"))
    told = Traffic()
    with box.stream("/usr/bin/python3", "-S", PROGRAM, str(PORT), str(CLIENTS)) as stream:
        lines = stream.lines()
        assert next(lines) == "asking"
        yield told
        box.run(f"pkill -TERM -f {PROGRAM}")
        whole: Mapping[str, Any] = json.loads(next(lines))
    told.outcomes, told.answered_by = whole["outcomes"], whole["answered_by"]
    told.errors, told.slowest_s = whole["errors"], whole["slowest_s"]


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[Fleet]:
    """Two models that exclude each other; streams take 0.3 s."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        for name, port in (("a", 9001), ("b", 9002)):
            fleet.profile(name, port, "--chunks", "10", "--pause", "0.03", "--think", "0.02")
        box.write("/etc/appliance/appliance.toml", '[gateway]\nmin_residency = "0s"\n')
        fleet.apply()
        fleet.keep()
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    """Shared box, a serving."""
    shared.restore("a")
    return shared


def gateway_pid(box: Box) -> int:
    return int(box.run(f"systemctl show -P MainPID {GATEWAY}").stdout)


@pytest.mark.timeout(180)
def test_switches_cost_nobody_an_answer(fleet: Fleet) -> None:
    """In twenty switches nobody is refused or cut, and each request is answered by who serves."""
    with traffic(fleet.box) as told:
        for number in range(SWITCHES):
            fleet.switch("ba"[number % 2])
    assert set(told.outcomes) == {"answered"}, told
    assert told.outcomes["answered"] > SWITCHES * CLIENTS
    assert set(told.answered_by) == {"hello from 9001", "hello from 9002"}
    assert not told.errors


@pytest.mark.timeout(180)
def test_restarts_refuse_nobody(fleet: Fleet) -> None:
    """The listener is systemd's: in five restarts and reloads each request is answered."""
    with traffic(fleet.box) as told:
        for number in range(RESTARTS):
            before = gateway_pid(fleet.box)
            fleet.box.run(f"systemctl {('restart', 'reload')[number % 2]} {GATEWAY}")
            fleet.box.wait_for(f"test $(systemctl show -P MainPID {GATEWAY}) -ne {before}")
    assert set(told.outcomes) == {"answered"}, told


@pytest.mark.timeout(180)
def test_a_killed_gateway_refuses_nobody(fleet: Fleet) -> None:
    """Requests in flight are lost with it and told so; no connection is refused."""
    with traffic(fleet.box) as told:
        for _ in range(KILLS):
            before = gateway_pid(fleet.box)
            fleet.box.run(f"kill -9 {before}")
            fleet.box.wait_for(
                f"p=$(systemctl show -P MainPID {GATEWAY}); test $p -ne 0 -a $p -ne {before}"
            )
    assert "refused" not in told.outcomes, told
    lost = sum(count for outcome, count in told.outcomes.items() if outcome != "answered")
    assert lost <= KILLS * CLIENTS, told


def test_a_load_that_nobody_waits_for_is_given_up(fleet: Fleet) -> None:
    """A client that asks for another model and leaves costs the next one a moment, not a minute of loading."""
    tables = '[gateway]\nswitch = "on-request"\n'
    fleet.profile("slow", 9003, "--delay", "60", tables=tables)
    fleet.apply()
    fleet.box.wait_for(f"curl -s 127.0.0.1:{PORT}/v1/models | grep -q slow")
    curl = ("curl", "-sm", "20", f"127.0.0.1:{PORT}/v1/completions", "-d")
    with fleet.box.stream(*curl, '{"model": "slow", "prompt": "?"}'):
        fleet.box.wait_for(
            "test -n \"$(systemctl show -P MainPID appliance-backend-slow | grep -v '^0')\""
        )
    answer = fleet.box.run(*curl, '{"model": "a", "prompt": "?"}')
    assert "hello from 9001" in answer.stdout
    assert fleet.active() == ["a"]
    cancelled = "nobody waits for slow any more: the switch is cancelled"
    assert cancelled in fleet.box.journal("-u", GATEWAY)

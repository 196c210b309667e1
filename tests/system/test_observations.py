"""Observations of the health agent on a booted box, by a process in its sandbox."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from appliance.model.names import unit_of
from tests import pretend
from tests.pretend import Gpus
from tests.system.fleet import Fleet
from tests.system.rig import Box, Image

UNIT: Final = unit_of("a")
PYTHON: Final = "/opt/appliance/current/bin/python"
LOOKER: Final = "/usr/local/lib/looker.py"
SCRIPT: Final = """
import asyncio, json, sys
from dataclasses import asdict
from pathlib import Path
from appliance.system.applied.installed_units import InstalledUnits
from appliance.system.applied.manifest import ManifestProfiles
from appliance.system.daemon_clients import AuditClient
from appliance.system.lane_client import SocketProbeLane
from appliance.system.systemd.unit_reader import SystemUnitReader
from appliance.model.errors import ApplianceError
from appliance.model.measurements import BoxGpus
from appliance.health.watching.box_observer import BoxObserver
from appliance.health.box_view import NOT_CONNECTED, view_of
from appliance.health.clock import SystemHealthClock
from appliance.health.watching.checks import EngineChecks
from appliance.health.watching.checks import WatchChecks, ask_no_url
from appliance.wire.async_client import open_conversation
from appliance.wire.control_events import status_in
from appliance.wire.typed_json import from_json
from appliance.wire.status_socket import STATUS, DocumentRequest, GpuEvidenceRequest
from appliance.settings.snapshot import take_snapshot

settings, clock = take_snapshot(), SystemHealthClock()


async def ask(request):
    async with open_conversation(STATUS, Path(settings.status_socket), request) as events:
        return (await anext(events)).details


async def gpus():
    return from_json(BoxGpus, await ask(GpuEvidenceRequest()))


async def look():
    applied_dir, unit_dir = Path(settings.applied_dir), Path(settings.unit_dir)
    catalogue = ManifestProfiles(applied_dir).load()
    units = SystemUnitReader(settings.unit_dir, clock.monotonic_s)
    lane = SocketProbeLane(Path(settings.lane_socket))
    try:
        status = status_in(await ask(DocumentRequest()))
        view = view_of(status, catalogue, clock.unix_s(), clock.monotonic_s())
    except ApplianceError:
        view = NOT_CONNECTED
    observer = BoxObserver(
        clock=clock,
        view=lambda: view,
        catalogue=lambda: catalogue,
        units=units.units,
        booted_unix_s=lambda: units.booted_unix_s,
        engines=EngineChecks(lane, clock, asyncio.Lock()),
        watches=WatchChecks(settings.watch, ask_no_url, clock),
        gpus=gpus,
        listeners=AuditClient(Path(settings.audit_socket)).listeners,
        drift=InstalledUnits(unit_dir, applied_dir).drift,
        directories=(str(settings.state_dir), str(settings.health.state_dir)),
    )
    print(json.dumps(asdict(await observer.look()), default=lambda one: one.fields()))


asyncio.run(look())
"""
"""Prints one look."""
DROP_IN: Final = f"""[Service]
Type=oneshot
Restart=no
WatchdogSec=0
ExecStart=
ExecStart={PYTHON} -I {LOOKER}
StandardOutput=truncate:/run/look.json
StandardError=journal
"""
SETTINGS: Final = '[[watch]]\nname = "old"\nunit = "vllm.service"\nmark = "standby"\n'


@pytest.fixture(scope="module")
def fleet(gpu_image: Image) -> Iterator[Fleet]:
    """A box with two pretend GPUs on which a serves, and a copy of the agent's unit that looks once."""
    with Box(gpu_image) as box:
        fleet = Fleet(box)
        fleet.gpu_pair()
        box.write("/etc/appliance/appliance.toml", SETTINGS)
        box.write(LOOKER, SCRIPT)
        box.run(
            "systemctl stop appliance-health.service; cd /run/systemd/system;"
            " cp $(systemctl show -P FragmentPath appliance-health) looker.service;"
            " mkdir looker.service.d; cat >looker.service.d/looker.conf; systemctl daemon-reload",
            stdin=DROP_IN,
        )
        fleet.switch("a")
        yield fleet


@pytest.fixture(scope="module")
def gpus(fleet: Fleet) -> Gpus:
    """The GPUs of that box."""
    return pretend.gpus_of(fleet.box)


def look(fleet: Fleet) -> Mapping[str, Any]:
    """One look of a process that has just begun."""
    done = fleet.box.run("systemctl start looker.service", check=False)
    assert not done.returncode, fleet.box.journal("-n30")
    found: Mapping[str, Any] = json.loads(fleet.box.run("cat /run/look.json").stdout)
    return found


def profile(fleet: Fleet) -> Mapping[str, Any]:
    """The profile a at one look."""
    row: Mapping[str, Any] = look(fleet)["profiles"]["a"]
    return row


def until(fleet: Fleet, is_so: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
    """Look until something is so; the look."""
    deadline = time.monotonic() + 20.0
    while not is_so(found := look(fleet)):
        assert time.monotonic() < deadline, found
    return found


def test_a_model_that_serves_is_seen_by_all_sources(fleet: Fleet) -> None:
    """In its sandbox the agent sees units, filter, engine, gateway, GPUs, files and watches."""
    found = look(fleet)
    assert found["supervisor_answers"]
    assert (found["supervisor"]["active"], found["gateway"]["active"]) == ("active", "active")
    assert (found["gateway_answers"], found["gpu_state"]) == (True, "ok")
    a, b = found["profiles"]["a"], found["profiles"]["b"]
    unit = a["unit"]
    assert (unit["active"], unit["main_pid"]) == ("active", fleet.main_pid("a"))
    assert unit["is_filtered"] is True
    assert (a["desired"], a["answers"], a["is_on_gpu"], a["drift"]) == (True, True, True, [])
    assert (a["held_bytes"], len(a["gpus"]), a["patch_applied"]) == (24 << 30, 2, True)
    assert (b["desired"], b["unit"]["active"], b["answers"]) == (False, "inactive", None)
    assert [gpu["holders"] for gpu in found["gpus"]] == [[], []]
    own = [one for one in found["listeners"] if one["unit"] == UNIT]
    assert [(one["address"], one["port"], one["is_reachable"]) for one in own] == [
        ("127.0.0.1", 9001, False)
    ]
    assert [disk["path"] for disk in found["disks"]]
    (watch,) = found["watches"]
    assert (watch["mark"], watch["is_up"]) == ("standby", False)
    assert watch["detail"] == "vllm.service is inactive (dead)"


def test_an_edited_unit_is_drift(fleet: Fleet) -> None:
    """Lines and drop-ins that apply has not written are told, and gone after an apply."""
    path = f"/etc/systemd/system/{UNIT}"
    fleet.box.run(f"cp {path} /run/unit.copy; echo Nice=5 >>{path}")
    fleet.box.write(f"{path}.d/override.conf", "[Service]\nNice=6\n")
    assert profile(fleet)["drift"] == [f"override.conf in {path}.d", "+Nice=5"]
    fleet.box.run(f"rm -r {path}.d; cp /run/unit.copy {path}; systemctl daemon-reload")
    assert profile(fleet)["drift"] == []


def test_faults_of_a_gpu_reach_who_may_only_look(fleet: Fleet, gpus: Gpus) -> None:
    """Errors, the driver's verdict and a stranger's memory come through the supervisor, which asks."""
    gpus.change({"*.xids": "31", "*.recovery_action": 0})
    assert [gpu["errors"] for gpu in look(fleet)["gpus"]] == [
        None,
        None,
    ]  # asked for the first time
    fleet.box.run("systemctl restart appliance-supervisor.service")
    until(fleet, lambda found: found["gpus"] is not None and found["gpus"][0]["errors"] == [])
    gpus.change({"1.xids": "31,48", "1.recovery_action": 1, "1.remap_pending": 1})
    stranger = fleet.foreign_holder("miner", "1:1")
    found = until(
        fleet, lambda found: bool(found["gpus"][1]["errors"] and found["gpus"][1]["holders"])
    )
    first, second = found["gpus"]
    assert (first["errors"], first["recovery_action"], first["holders"]) == ([], "none", [])
    assert [event["xid"] for event in second["errors"]] == [48]
    assert second["recovery_action"] == "gpu-reset"
    (holder,) = second["holders"]
    assert (holder["pid"], holder["user"], holder["held_bytes"]) == (stranger, "bob", 1 << 30)
    fleet.box.run("systemctl stop miner")
    gpus.change(dict.fromkeys(("*.xids", "1.xids", "*.recovery_action", "1.recovery_action")))


def test_a_frozen_engine_does_not_answer(fleet: Fleet) -> None:
    """The unit of an engine that is stopped by a signal is active, and the engine silent."""
    pid = fleet.main_pid("a")
    fleet.box.run(f"kill -STOP {pid}")
    # The gateway may still wait for the supervisor, which has just begun.
    found = until(fleet, lambda found: found["profiles"]["a"]["answers"] is not None)
    a = found["profiles"]["a"]
    assert (a["unit"]["active"], a["answers"], a["desired"]) == ("active", False, True)
    fleet.box.run(f"kill -CONT {pid}")
    assert profile(fleet)["answers"] is True


def test_units_are_seen_without_the_supervisor(fleet: Fleet) -> None:
    """A supervisor that is stopped is seen to be so, and the models are seen all the same."""
    fleet.box.run("systemctl stop appliance-supervisor.socket appliance-supervisor.service")
    found = look(fleet)
    assert (found["supervisor_answers"], found["supervisor"]["active"]) == (False, "inactive")
    a = found["profiles"]["a"]
    assert (a["unit"]["active"], a["mark"], a["desired"]) == ("active", None, None)
    assert found["gpus"] is None
    fleet.box.run("systemctl start appliance-supervisor.socket appliance-supervisor.service")
    fleet.box.wait_for("appliance status")


def test_a_crash_is_told_from_a_stop_by_hand(fleet: Fleet) -> None:
    """A killed engine should serve, and one that was stopped by hand should not."""
    fleet.box.run(f"kill -9 {fleet.main_pid('a')}")
    a = profile(fleet)
    assert (a["unit"]["active"], a["desired"]) == ("activating", True)
    found = until(fleet, lambda found: found["profiles"]["a"]["unit"]["active"] == "active")
    assert found["profiles"]["a"]["unit"]["restarts"] == 1
    fleet.box.run(f"systemctl stop {UNIT}")
    a = profile(fleet)
    assert (a["unit"]["active"], a["desired"]) == ("inactive", False)

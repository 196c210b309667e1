"""Preflight: an engine is asked about its build before anything is stopped."""

import asyncio
from dataclasses import replace

import pytest

from appliance.model.engine_build import EngineBuild
from appliance.model.operations import Kind
from appliance.settings.tables import Settings
from appliance.supervisor.ownership import OperationRequest
from appliance.switch.preflight_facts import Presence, ProfileFacts
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts

BOX = catalogue(
    applied("a", "cpu"),
    replace(
        applied("l", "cpu", port=9001),
        engine="llama-server",
        command=("/usr/bin/true", "--port", "9001", "--fit", "off"),
    ),
)
OLD = EngineBuild(version="b1", options={"--port": ()})
NEW = EngineBuild(version="b2", options={"--port": (), "--fit": ()})
REFUSAL = "the appliance gives --fit to each llama-server, which /usr/bin/true (b1) does not have"


@pytest.fixture
def fakes() -> FakePorts:
    """A box where a serves."""
    fakes = FakePorts(BOX, "a")
    fakes.serve("a")
    return fakes


async def rehearsed(fakes: FakePorts, name: str = "l") -> str:
    """Return the findings on a switch."""
    supervisor = fakes.supervisor(FakeProfiles(BOX), settings=Settings(look_every_s=10.0))
    task = asyncio.create_task(supervisor.run())
    await asyncio.sleep(0)
    try:
        request = OperationRequest(kind=Kind.SWITCH, names=(name,))
        _, found = await supervisor.rehearse(request)
    finally:
        task.cancel()
        await asyncio.wait({task})
    return "\n".join(finding.text for finding in found)


async def test_a_build_that_is_known_is_not_asked_again(fakes: FakePorts) -> None:
    """The record of an unchanged program is enough; a command is never asked."""
    fakes.host.builds["l"] = OLD
    assert REFUSAL in await rehearsed(fakes)
    fakes.host.builds["l"] = NEW
    assert REFUSAL not in await rehearsed(fakes)
    await rehearsed(fakes, "a")
    assert not fakes.units.asked


@pytest.mark.parametrize("hidden", [False, True])
async def test_the_first_switch_asks_before_it_stops_anything(
    fakes: FakePorts, *, hidden: bool
) -> None:
    """A program that nobody has asked, or that the supervisor cannot look at, is asked."""
    if hidden:
        fakes.host.builds["l"] = NEW
        fakes.host.unseen_programs.add("l")
    fakes.units.on_ask = lambda name: fakes.host.builds.update({name: OLD})
    assert REFUSAL in await rehearsed(fakes)
    assert fakes.units.asked == ["l"]
    assert fakes.systemd.observed(BOX).serving() == ("a",)


async def test_a_program_that_cannot_be_asked_refuses_nothing(fakes: FakePorts) -> None:
    """The reason is a warning: the engine itself may still know its options."""
    fakes.units.mute = True
    text = await rehearsed(fakes)
    assert "the options of /usr/bin/true are not known: it cannot be asked: the job" in text
    assert REFUSAL not in text


async def test_a_missing_program_is_not_asked(fakes: FakePorts) -> None:
    """Preflight says that the program is not there."""
    fakes.host.profile_facts["l"] = ProfileFacts(engine=Presence.MISSING)
    assert "engine not found" in await rehearsed(fakes)
    assert not fakes.units.asked

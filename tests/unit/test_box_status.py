"""The status document of a running supervisor, as a whole."""

from appliance.domain.gateway import EngineLoad
from appliance.services.ledger import LedgerKeeper
from appliance.services.supervisor import Supervisor
from appliance.surfaces.box_status import BoxStatus
from tests.fakes.outside import FakeOutside
from tests.fakes.profiles import FakeProfiles, applied, catalogue

BOX = catalogue(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"))


async def test_the_gateways_figures_stand_beside_the_engines() -> None:
    """Of what serves the engine is asked; a gateway that is away is said to be down."""
    outside = FakeOutside(BOX, "aeon")
    outside.serve("aeon")
    outside.backend.loads["aeon"] = EngineLoad(running=1, queued=2, kv_cache=0.25)
    ports = outside.ports()
    supervisor = Supervisor(ports, FakeProfiles(BOX), look_every_s=1.0, on_look=lambda _line: None)
    ledger = LedgerKeeper(ports, supervisor.last_look, every_s=5.0)
    status = BoxStatus(supervisor, ledger, ports, lambda: None)
    gateway = (await status.document())["gateway"]
    assert (gateway["state"], gateway["uptime_s"]) == ("up", 1.0)
    (aeon,) = gateway["profiles"]
    assert (aeon["name"], aeon["requests"]) == ("aeon", 0)
    assert aeon["engine"] == {"running": 1, "queued": 2, "kv_cache": 0.25}
    outside.gateway.away = True
    assert (await status.document())["gateway"]["state"] == "down"


async def test_damaged_files_are_told_until_they_are_whole() -> None:
    """Root reads first what is wrong with the manifest and with the gateway's file."""
    ports = FakeOutside(BOX, "aeon").ports()
    profiles = FakeProfiles(BOX, damage="the manifest is damaged")
    supervisor = Supervisor(ports, profiles, look_every_s=1.0, on_look=lambda _line: None)
    ledger = LedgerKeeper(ports, supervisor.last_look, every_s=5.0)
    found: list[str | None] = ["gateway.json is damaged", None]
    status = BoxStatus(supervisor, ledger, ports, lambda: found.pop(0))
    why = (await status.document())["verdict"]["why"]
    assert why[:2] == ["the manifest is damaged", "gateway.json is damaged"]
    profiles.damage = None
    supervisor.reload()
    again = (await status.document())["verdict"]["why"]
    assert again == why[2:]

"""Process of the web: answers on the sockets that systemd passes, and leaves when nobody looks."""

import logging
import socket
import sys
from asyncio import FIRST_COMPLETED, create_task, wait
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from appliance.daemon_main import ToldToEndError, run_daemon, until_told
from appliance.model.errors import UnitError
from appliance.model.names import WEB_SOCKET_UNIT
from appliance.model.web_addresses import WebAddresses
from appliance.routing.origin_policy import SameOriginPolicy
from appliance.settings.tables import Settings
from appliance.system.daemon_clients import TokenOwners
from appliance.system.kernel.peers import Peers
from appliance.system.systemd.daemon import Readiness, freeze_garbage, inherited_sockets
from appliance.web.actions import GatewayTrials, SocketBoxActions
from appliance.web.application import make_application
from appliance.web.guards import OpenAddresses
from appliance.web.http_server import WebServer
from appliance.web.live_box import LiveBox
from appliance.web.page.focus import LiveFocus

_log = logging.getLogger(__name__)

_LIBRARIES: Final = ("uvicorn", "fastapi", "asyncio")
"""Loggers that would tell of every client's mistake."""


async def run(settings: Settings, *, idle_s: float | None = None) -> None:
    """Answer until idle, SIGTERM or SIGINT. Raises `ApplianceError`."""
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    inherited = inherited_sockets()
    listeners = [one for one in inherited if one.family != socket.AF_NETLINK]
    # The network of this process has no connections: it is asked about those of the sockets' network.
    peers = Peers(next((one for one in inherited if one.family == socket.AF_NETLINK), None))
    if not listeners:
        raise UnitError(f"no socket was passed: systemctl start {WEB_SOCKET_UNIT}")
    named = WebAddresses(port=settings.status_port, addresses=settings.web.listen)
    policy = SameOriginPolicy.of([*names_of(settings), *named.addresses])
    sockets = settings.status_socket, settings.view_socket
    addresses = OpenAddresses(
        named,
        [listener.getsockname()[:2] for listener in listeners],
        TokenOwners(sockets[0]).is_any_usable,
    )
    application = make_application(
        LiveBox(*sockets),
        LiveFocus(*sockets),
        SocketBoxActions(sockets[0], settings.token_socket, sockets[1]),
        policy,
        trials=GatewayTrials(settings.prompt_socket),
        enabled=settings.web.enabled,
    )
    server = WebServer(application, addresses.admits, peers.owner)
    readiness = Readiness()
    await addresses.ask()
    idle_s = settings.web.idle if idle_s is None else idle_s
    served = create_task(server.serve_until_idle(listeners, idle_s))
    told = create_task(until_told(readiness))
    asking = create_task(addresses.follow())
    readiness.ready()
    freeze_garbage()
    await wait({served, told}, return_when=FIRST_COMPLETED)
    server.should_exit = True
    await served
    told.cancel()
    asking.cancel()
    await wait({told, asking})
    if not told.cancelled() and not isinstance(told.exception(), ToldToEndError):
        told.result()


def names_of(settings: Settings) -> list[str]:
    """Return the host names by which this machine may be asked, besides its addresses."""
    button = urlsplit(settings.alerts.button_url).hostname
    own = socket.gethostname().lower()
    return [own, *settings.web.names, *([button] if button else [])]


def main() -> int:
    """Run the web process; returns its exit status. One argument is the seconds after which it leaves."""
    idle_s = float(sys.argv[1]) if len(sys.argv) > 1 else None
    return run_daemon(partial(run, idle_s=idle_s))

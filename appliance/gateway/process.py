"""Gateway process: assembly of its parts, hand-over and orderly end.

==============  ===================================================================================
signal          what happens
==============  ===================================================================================
SIGHUP          another process takes over; this one ends what is under way, and exits
SIGTERM/SIGINT  no new client is accepted; what is under way has a few seconds, then gets an error
==============  ===================================================================================
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final

import uvloop

from appliance.gateway.client_connection import ClientConnection
from appliance.gateway.configuration import AllowedPaths, GatewayFiles
from appliance.gateway.handover import (
    CombinedTraffic,
    Handover,
    HandoverError,
    Predecessors,
    Successor,
    parse_handover,
)
from appliance.gateway.keys import KeyRing
from appliance.gateway.lane import LaneReservations
from appliance.gateway.lane_server import LaneServer
from appliance.gateway.listeners import Handshake, ListenAddress, Listeners
from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.gateway.supervisor_commands import GatewayServer, RequestList, SupervisorCommands
from appliance.gateway.switch_requester import SwitchRequester, ask_for_switch, cancel_switch
from appliance.model.errors import StoreError
from appliance.model.gateway import Configuration, Routed, Standing
from appliance.model.paths import LANE_SOCKET, PROMPT_SOCKET
from appliance.model.plain_text import plain
from appliance.routing.origin_policy import OriginPolicy
from appliance.routing.switch_scheduler import SwitchPolicy
from appliance.system.systemd.daemon import (
    Notices,
    freeze_garbage,
    inherited_sockets,
    log_to_journal,
)
from appliance.wire.control import Exit
from appliance.wire.json_values import Json

_log = logging.getLogger(__name__)

_CHECK_EVERY_S: Final = 1.0
_FOLLOW_EVERY_S: Final = 0.25
_STOP_MARGIN_S: Final = 10.0
"""Time for the rest of a stop, when all requests are over."""


class GatewayProcess:
    """Relay with its routing table, keys, meter, listeners and control socket.

    Args:
        files: Directories of its files.
        configuration: Compiled settings.
        notices: Messages to systemd.
    """

    def __init__(self, files: GatewayFiles, configuration: Configuration, notices: Notices) -> None:
        self._files = files
        self._configuration = configuration
        self._notices = notices
        self._keys = KeyRing(Path(configuration.state_dir))
        self._manifest = files.manifest_stamp()
        """Stamp of the manifest that was read last, taken before it was read."""
        self._table = RoutingTable(_catalogue(files), directory=files.runtime)
        self._meter = Meter()
        self._relay = Relay(
            router=self._table,
            observer=self._meter,
            key_checker=self._keys,
            limits=configuration.limits,
            allowed=AllowedPaths(configuration.allow_paths),
            origin_policy=_origin_policy(configuration),
        )
        self._switch_requester = SwitchRequester(
            self._table,
            partial(ask_for_switch, Path(configuration.request_socket)),
            partial(cancel_switch, Path(configuration.request_socket)),
            waiting=self._meter.waiting,
            in_flight=self._relay.in_flight,
            policy=SwitchPolicy(residency_s=configuration.min_residency_s),
        )
        self._predecessors = Predecessors(files.runtime)
        self._lane = LaneReservations(
            self._relay,
            self._table,
            configuration.limits,
            replaced=self._predecessors.any_alive,
        )
        self._lane_server = LaneServer(self._lane, self._relay, self._table)
        traffic = CombinedTraffic(self._relay, self._predecessors)
        self._listeners: Listeners | None = None
        """Sockets of clients; None: not open yet."""
        self._lacks_certificate = False
        """Whether the settings ask for TLS and this process was given no usable certificate."""
        self._certificate = files.certificate_watch(configuration.certificate)
        commands = SupervisorCommands(
            self._table,
            traffic,
            self._meter,
            RequestList(self._relay),
            reload=self._reload,
            listening=self._listening,
        )
        self._server = GatewayServer(commands.do)
        self._signals: asyncio.Queue[int] = asyncio.Queue()
        self._logged_closed = False
        """Whether the refusal of clients beyond loopback has been logged since there was a key."""

    async def run(self, inherited: Sequence[socket.socket], handover: Handover | None) -> None:
        """Serve until a signal ends this process, or another process has taken over.

        Args:
            inherited: Listening sockets; those with a path are the supervisor's, the lane's and the page's.
            handover: What an old process hands over; None: systemd has started this one.

        Raises:
            HandoverError: The old process goes on itself.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        unix_sockets = [s for s in inherited if s.family == socket.AF_UNIX]
        listeners = self._new_listeners([s for s in inherited if s.family != socket.AF_UNIX])
        self._listeners = listeners
        listeners.open()
        # A part that dies ends the process, and systemd starts it again.
        async with asyncio.TaskGroup() as tasks:
            doors = [tasks.create_task(self._serve_unix(one.dup())) for one in unix_sockets]
            accepting = tasks.create_task(listeners.follow())
            working = [
                tasks.create_task(work)
                for work in (
                    self._switch_requester.run(),
                    self._check_files(),
                    self._lane_server.follow(),
                )
            ]
            if handover is not None:
                await handover.take_over()
                # The state may have changed while this process came up.
                self._table.follow()
            # Not before: until then clients of the old process would not end a probe of this one.
            self._lane.open()
            self._notices.ready(self._status())
            freeze_garbage()
            handed_over = await self._wait_for_end([*listeners.sockets, *unix_sockets], doors)
            await _end_tasks(doors)
            accepting.cancel()
            await listeners.close()
            if handed_over:
                self._server.retire()
                self._table.retire()
                working.append(tasks.create_task(self._follow_successor()))
            await self._end(handed_over=handed_over)
            await self._lane_server.close()
            await self._server.close()
            for task in working:
                task.cancel()

    async def _serve_unix(self, listener: socket.socket) -> None:
        """Serve supervisor, lane or page for ever, by the name of the socket's file."""
        name = Path(listener.getsockname()).name
        if name == Path(PROMPT_SOCKET).name:
            await self._serve_page(listener)
        else:
            is_lane = name == Path(LANE_SOCKET).name
            await (self._lane_server if is_lane else self._server).serve(listener)

    async def _serve_page(self, listener: socket.socket) -> None:
        """Serve the web process as a client that needs no key: it has checked the operator's token."""
        client = partial(ClientConnection, self._relay, loopback=True)
        server = await asyncio.get_running_loop().create_unix_server(client, sock=listener)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()

    def _new_listeners(self, inherited: Sequence[socket.socket]) -> Listeners:
        configuration, context = self._configuration, None
        if configuration.tls and configuration.beyond_loopback():
            context = self._files.read_tls()
            if context is None:
                # Never without TLS where the settings ask for TLS.
                self._lacks_certificate = True
                configuration = configuration.on_loopback()
        return Listeners(
            configuration,
            inherited,
            store=self._notices,
            serve=partial(self._serve, context),
            owner_of=self._relay.peers.owner_of,
            tls=context is not None,
        )

    def _serve(
        self, context: SSLContext | None, address: ListenAddress, accepted: socket.socket
    ) -> asyncio.BaseProtocol | None:
        if not address.is_loopback and self._keys.empty:
            if not self._logged_closed:
                _log.error("%s is closed: there is no key (appliance key add NAME)", address)
            self._logged_closed = True
            accepted.close()
            return None
        # Logged once, and again only after there was a key: any machine can try to connect.
        self._logged_closed = self._logged_closed and self._keys.empty
        trusted = address.is_loopback and not self._configuration.keys_always
        connection = ClientConnection(self._relay, loopback=trusted, local=address.is_loopback)
        if context is None or address.is_loopback:
            return connection
        Handshake(accepted, self._relay, connection).start(context)
        return None

    # --- while the process runs ----------------------------------------------------------

    async def _check_files(self) -> None:
        """Read changed keys, and report the status to systemd, for ever."""
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            self._keys.refresh()
            self._follow_manifest()
            self._notices.alive(self._status())

    def _follow_manifest(self) -> None:
        """Read profiles that were applied without a command to: no supervisor may have run."""
        seen = self._files.manifest_stamp()
        if seen != self._manifest:
            self._manifest = seen
            try:
                self._table.adopt(self._files.read_catalogue())
            except StoreError as error:
                _log.error("profiles cannot be read, and stay as they were: %s", error)

    def _reload(self) -> None:
        """Read profiles and keys again. Raises `StoreError`, and then changes nothing."""
        self._keys.refresh()
        self._manifest = self._files.manifest_stamp()
        self._table.adopt(self._files.read_catalogue())

    def _listening(self) -> Json:
        """Return where clients are served, and what other machines still lack, for the status."""
        listeners, wanted = self._listeners, self._configuration
        tls = "on" if wanted.tls and wanted.beyond_loopback() else "off"
        if tls == "on" and self._certificate.is_renewed():
            tls = "renewed"
        addresses = [] if listeners is None else listeners.addresses
        return {
            "addresses": [one.place for one in sorted(addresses, key=_loopback_first)],
            "absent": [] if listeners is None else listeners.absent(),
            "tls": "waiting" if self._lacks_certificate else tls,
            "keys": len(self._keys),
            "closed": bool(wanted.beyond_loopback()) and self._keys.empty,
            "engine_keys": self._files.late_engine_keys(self._table.catalogue),
        }

    def _status(self) -> str:
        state = self._table.state
        serving = sorted(n for n, s in state.standings.items() if s is Standing.SERVING)
        parts = [f"{', '.join(serving)} {'serve' if serving[1:] else 'serves'}"] if serving else []
        parts = parts or ["nothing serves"]
        parts.append(f"{self._relay.in_flight(self._table.catalogue)} in flight")
        if waiting := self._meter.waiting():
            parts.append(f"{waiting} waiting")
        return " · ".join(parts)

    # --- end of the process --------------------------------------------------------------

    async def _wait_for_end(
        self, sockets: Sequence[socket.socket], doors: Sequence[asyncio.Task[None]]
    ) -> bool:
        """Wait for a signal; return True when another process has taken over.

        Args:
            sockets: All listening sockets, which another process gets.
            doors: Tasks that serve supervisor and lane; they end before the other process is ready.
        """
        while await self._signals.get() == signal.SIGHUP:
            # Both processes accept clients for a moment: a probe here would not yield to those there.
            self._lane.close("the gateway is being replaced")
            try:
                successor = await Successor.start(sockets)
            except HandoverError as error:
                _log.error("the hand-over failed, this process continues: %s", error)
                self._lane.open()
                continue
            self._notices.hand_over(successor.pid)
            # A client that comes from now on is left to the other process, which serves already.
            await _end_tasks(doors)
            # Before the confirmation: as long as this file is there the other process admits no probe.
            self._publish_in_flight()
            successor.confirm()
            _log.info("process %d has taken over", successor.pid)
            return True
        return False

    async def _end(self, *, handed_over: bool) -> None:
        limit_s = self._configuration.stop_s
        self._lane.close("the gateway stops")
        if not handed_over:
            status = f"stopping: at most {limit_s:g} s for what is under way"
            self._notices.stopping(status, limit_s + _STOP_MARGIN_S)
        elif await self._drain():
            return
        _log_end(*await self._relay.stop(limit_s))

    async def _drain(self) -> bool:
        """Wait for all requests after a hand-over; False: a signal to stop came first."""
        ending = asyncio.ensure_future(self._relay.stop(self._configuration.drain_s))
        stop = asyncio.ensure_future(self._wait_for_stop())
        either: set[asyncio.Future[Any]] = {ending, stop}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            stop.cancel()
            _log_end(*ending.result())
            return True
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        return False

    async def _follow_successor(self) -> None:
        """Follow the state that the new process writes, and publish the requests in flight here."""
        try:
            while True:
                self._table.follow()
                self._publish_in_flight()
                await asyncio.sleep(_FOLLOW_EVERY_S)
        finally:
            self._predecessors.withdraw()

    def _publish_in_flight(self) -> None:
        self._predecessors.publish(
            {name: self._relay.in_flight((name,)) for name in self._table.catalogue}
        )

    async def _wait_for_stop(self) -> None:
        while await self._signals.get() == signal.SIGHUP:
            pass


def _loopback_first(address: ListenAddress) -> tuple[bool, str]:
    return not address.is_loopback, address.name


async def _end_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _origin_policy(configuration: Configuration) -> OriginPolicy:
    own = socket.gethostname()
    return OriginPolicy.of(
        (own, own.partition(".")[0], *configuration.names), configuration.origins
    )


def _log_end(finished: int, cut: int) -> None:
    _log.info("ended: %d requests finished, %d were cut", finished, cut)


def _catalogue(files: GatewayFiles) -> dict[str, Routed]:
    try:
        return files.read_catalogue()
    except StoreError as error:
        # The gateway works all the same, and the next apply repairs the file.
        _log.error("profiles cannot be read, and none is served: %s", error)
        return {}


async def _run(
    handover: Handover | None, files: GatewayFiles, configuration: Configuration
) -> None:
    gateway = GatewayProcess(files, configuration, Notices())
    sockets = inherited_sockets() if handover is None else handover.sockets
    await gateway.run(sockets, handover)


def main(arguments: Sequence[str]) -> int:
    """Run the gateway; return its exit status."""
    handover = parse_handover(arguments)
    files = GatewayFiles.of(os.environ)
    try:
        found = files.read_configuration()
    except StoreError as error:
        sys.stderr.write(f"<3>{plain(str(error))}\n")
        return Exit.CONFIG
    configuration = found.content
    log_to_journal(configuration.log_level)
    if found.damage is not None:
        _log.error("%s", found.damage)
    status = Exit.OK
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(handover, files, configuration))
    except* HandoverError as group:
        _log.error("%s", group.exceptions[0])
        status = Exit.FAILED
    return status

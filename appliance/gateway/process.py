"""The gateway's process: puts everything together, and goes in good order.

==============  ===================================================================================
signal          what happens
==============  ===================================================================================
SIGHUP          another process takes over; this one ends what is under way, and exits
SIGTERM/SIGINT  nobody new is taken; what is under way has a few seconds, and is then told an error
==============  ===================================================================================
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, cast

import uvloop

from appliance.adapters.systemd.journal_log import log_to_journal
from appliance.adapters.systemd.notify import Notices, inherited_sockets
from appliance.domain.errors import StoreError
from appliance.domain.gateway import Configuration, Routed, Standing
from appliance.gateway.configuration import AllowedPaths, Places
from appliance.gateway.control_server import Control
from appliance.gateway.downstream.handshakes import TlsServer
from appliance.gateway.downstream.listeners import Listeners, Place
from appliance.gateway.handover import HandOverError, Predecessor, Successor, predecessor
from appliance.gateway.keys import KeyRing
from appliance.gateway.meter import Meter
from appliance.gateway.predecessors import AllTraffic, Remainder
from appliance.gateway.relay.relay import Front
from appliance.gateway.routing_table import Table
from appliance.gateway.supervisor_client import ask_for_switch
from appliance.gateway.switch_requester import Wanting
from appliance.planning.routing.origin_policy import Visitors
from appliance.planning.routing.switch_scheduler import Turns
from appliance.protocol.control import Exit

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 1.0
_FOLLOW_EVERY_S: Final = 0.25
_MORE_S: Final = 10.0
"""For the rest of an end, when what was under way is over."""


class _Closed(asyncio.Protocol):
    """Takes nobody: without a key, nothing is served beyond this machine."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hang up at once."""
        cast("asyncio.Transport", transport).abort()


class Gateway:
    """The relay with all that it needs around it.

    Args:
        places: Where its files are.
        configuration: The settings.
        notices: What systemd is told.
    """

    def __init__(self, places: Places, configuration: Configuration, notices: Notices) -> None:
        self._places = places
        self._configuration = configuration
        self._notices = notices
        self._keys = KeyRing(Path(configuration.state_dir))
        self._table = Table(_catalogue(places), directory=places.runtime)
        self._meter = Meter()
        self._front = Front(
            router=self._table,
            observer=self._meter,
            gatekeeper=self._keys,
            limits=configuration.limits,
            allowed=AllowedPaths(configuration.allow_paths),
            visitors=_visitors(configuration),
        )
        self._wanting = Wanting(
            self._table,
            partial(ask_for_switch, Path(configuration.request_socket)),
            waiting=self._meter.waiting,
            in_flight=self._front.in_flight,
            turns=Turns(residency_s=configuration.min_residency_s),
        )
        self._remainder = Remainder(places.runtime)
        traffic = AllTraffic(self._front, self._remainder)
        self._control = Control(self._table, traffic, self._meter, reload=self._reread)
        self._signals: asyncio.Queue[int] = asyncio.Queue()
        self._shut = False

    async def run(self, inherited: Sequence[socket.socket], before: Predecessor | None) -> None:
        """Serve until told to end, or until another process has taken over.

        Args:
            inherited: Listening sockets; one of a path is the supervisor's way in.
            before: The process that this one takes over from; None: systemd has started it.

        Raises:
            HandOverError: the process before goes on itself.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        doors = [s for s in inherited if s.family == socket.AF_UNIX]
        listeners = self._listeners([s for s in inherited if s.family != socket.AF_UNIX])
        await listeners.open()
        # A part that dies ends the process, and systemd starts it again.
        async with asyncio.TaskGroup() as tasks:
            answering = [tasks.create_task(self._control.serve(door.dup())) for door in doors]
            following = tasks.create_task(listeners.follow())
            working = [tasks.create_task(w) for w in (self._wanting.run(), self._look())]
            if before is not None:
                await before.take_over()
                # What it was told while this one came up.
                self._table.follow()
            self._notices.ready(self._status())
            _settle()
            handed_over = await self._until_told(listeners, doors)
            for task in (following, *answering):
                task.cancel()
            listeners.close()
            if handed_over:
                self._control.retire()
                self._table.retire()
                working.append(tasks.create_task(self._follow()))
            await self._end(handed_over=handed_over)
            await self._control.close()
            for task in working:
                task.cancel()

    def _listeners(self, inherited: Sequence[socket.socket]) -> Listeners:
        configuration, serve_tls = self._configuration, None
        if configuration.tls and configuration.beyond_loopback():
            context = self._places.tls()
            if context is None:
                # Never in the clear where TLS was asked for.
                configuration = configuration.on_loopback()
            else:
                serve_tls = partial(self._serve_tls, context)
        return Listeners(
            configuration,
            inherited,
            keeper=self._notices,
            serve=self._connection,
            serve_tls=serve_tls,
        )

    def _serve_tls(self, context: SSLContext, place: Place, listener: socket.socket) -> TlsServer:
        return TlsServer(listener, context, self._front, partial(self._connection, place))

    def _connection(self, place: Place) -> asyncio.BaseProtocol:
        if not place.loopback and self._keys.empty:
            if not self._shut:
                _log.error("%s is closed: there is no key (appliance key add NAME)", place)
            self._shut = True
            return _Closed()
        # Said once, and again only after there was a key: anybody out there can knock.
        self._shut = self._shut and self._keys.empty
        trusted = place.loopback and not self._configuration.keys_always
        return self._front.connection(loopback=trusted, local=place.loopback)

    # --- while it runs ---------------------------------------------------------------

    async def _look(self) -> None:
        """See what has changed, and tell systemd how it is, for ever."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self._keys.refresh()
            self._notices.alive(self._status())

    def _reread(self) -> None:
        """Take profiles and keys anew. Raises `StoreError`; everything stays then."""
        self._keys.refresh()
        self._table.adopt(self._places.catalogue())

    def _status(self) -> str:
        state = self._table.state
        serving = sorted(n for n, s in state.standings.items() if s is Standing.SERVING)
        words = [f"{', '.join(serving)} {'serve' if serving[1:] else 'serves'}"] if serving else []
        words = words or ["nothing serves"]
        words.append(f"{self._front.in_flight(self._table.catalogue)} in flight")
        if waiting := self._meter.waiting():
            words.append(f"{waiting} waiting")
        return " · ".join(words)

    # --- how it ends -----------------------------------------------------------------

    async def _until_told(self, listeners: Listeners, doors: Sequence[socket.socket]) -> bool:
        """Whether another process has taken over; else this one is to end."""
        while await self._signals.get() == signal.SIGHUP:
            try:
                successor = await Successor.start([*listeners.sockets, *doors])
            except HandOverError as error:
                _log.error("this process goes on: %s", error)
                continue
            self._notices.hand_over(successor.pid)
            successor.release()
            _log.info("process %d has taken over", successor.pid)
            return True
        return False

    async def _end(self, *, handed_over: bool) -> None:
        limit_s = self._configuration.stop_s
        if not handed_over:
            status = f"stopping: at most {limit_s:g} s for what is under way"
            self._notices.stopping(status, limit_s + _MORE_S)
        elif await self._drained():
            return
        _report(*await self._front.stop(limit_s))

    async def _drained(self) -> bool:
        """Whether everything has ended before this process was told to, too."""
        ending = asyncio.ensure_future(self._front.stop(self._configuration.drain_s))
        told = asyncio.ensure_future(self._told_to_end())
        either: set[asyncio.Future[Any]] = {ending, told}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            told.cancel()
            _report(*ending.result())
            return True
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        return False

    async def _follow(self) -> None:
        """Go by what the process that has taken over is told, and let it know of our requests."""
        try:
            while True:
                self._table.follow()
                self._remainder.tell(
                    {name: self._front.in_flight((name,)) for name in self._table.catalogue}
                )
                await asyncio.sleep(_FOLLOW_EVERY_S)
        finally:
            self._remainder.withdraw()

    async def _told_to_end(self) -> None:
        while await self._signals.get() == signal.SIGHUP:
            pass


def _visitors(configuration: Configuration) -> Visitors:
    own = socket.gethostname()
    return Visitors.of((own, own.partition(".")[0], *configuration.names), configuration.origins)


def _settle() -> None:
    """What is there by now stays: looking through it over and over would cost a pause each."""
    gc.collect()
    gc.freeze()


def _report(finished: int, cut: int) -> None:
    _log.info("ended: %d requests finished, %d were cut", finished, cut)


def _catalogue(places: Places) -> dict[str, Routed]:
    try:
        return places.catalogue()
    except StoreError as error:
        # Everything else works, and the next apply puts it right.
        _log.error("no profile is known: %s", error)
        return {}


async def _run(before: Predecessor | None, places: Places, configuration: Configuration) -> None:
    gateway = Gateway(places, configuration, Notices())
    await gateway.run(inherited_sockets() if before is None else before.sockets, before)


def main(arguments: Sequence[str]) -> int:
    """Run the gateway; returns its exit status."""
    before = predecessor(arguments)
    places = Places.of(os.environ)
    try:
        found = places.configuration()
    except StoreError as error:
        sys.stderr.write(f"<3>{error}\n")
        return Exit.CONFIG
    configuration = found.content
    log_to_journal(configuration.log_level)
    if found.damage is not None:
        _log.error("%s", found.damage)
    status = Exit.OK
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(before, places, configuration))
    except* HandOverError as group:
        _log.error("%s", group.exceptions[0])
        status = Exit.FAILED
    return status

"""Process of the supervisor: assembles its parts and runs them until SIGTERM.

One TaskGroup: a part that dies ends the process, and systemd starts the process again. Models are
units of systemd, so neither costs them a token.
"""

import asyncio
import logging
import pwd
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from appliance.daemon_main import ToldToEndError, daemon_tasks, run_daemon, until_told
from appliance.model.errors import ApplianceError, StoreError, UnitError
from appliance.model.names import (
    GATEWAY_USER,
    REQUEST_SOCKET_UNIT,
    STATUS_SOCKET_UNIT,
    SUPERVISOR_SOCKET_UNIT,
    SUPERVISOR_UNIT,
    TOKEN_SOCKET_UNIT,
    WEB_USER,
)
from appliance.model.paths import BUILDS
from appliance.settings.tables import Settings
from appliance.supervisor.access_policy import (
    ReadByToken,
    ReadFromGateway,
    read_from_operator,
)
from appliance.supervisor.client_requests import ClientRequests
from appliance.supervisor.control_verbs import ControlVerbs
from appliance.supervisor.gpu_evidence import GpuEvidenceSource
from appliance.supervisor.memory_sampler import MemorySampler
from appliance.supervisor.operator_tokens import TokenDesk
from appliance.supervisor.ownership import Supervisor
from appliance.supervisor.stall_watch import StallWatch
from appliance.supervisor.status_feed import StatusFeed
from appliance.supervisor.status_report import BoxStatus, FileComparison
from appliance.supervisor.status_verbs import EnginePageReader, LogReader, StatusVerbs
from appliance.supervisor.token_check import TokenCheck
from appliance.supervisor.token_verbs import TokenVerbs
from appliance.supervisor.traffic_figures import TrafficFigures, counters_document
from appliance.supervisor.unit_memory import StatusReader, UnitMemory
from appliance.system.applied.manifest import DamageWatch, ManifestProfiles
from appliance.system.commitment import FileCommitment
from appliance.system.credential_files import FileKeys, FileTokens
from appliance.system.engine_http import HttpBackend
from appliance.system.host import LinuxHost, SystemClock
from appliance.system.launch_files import TICKET, FileRunTickets
from appliance.system.peaks import FilePeaks
from appliance.system.ports import Profiles
from appliance.system.socket_gateway import SocketGateway
from appliance.system.sqlite.operation_store import OperationStore
from appliance.system.systemd.daemon import Readiness, freeze_garbage, named_sockets
from appliance.system.systemd.service_manager import SystemdUnits
from appliance.system.user_accounts import account_of, account_of_uid

_log = logging.getLogger(__name__)

_MANIFEST_EVERY_S: Final = 1.0
"""Pause between two readings of a damaged manifest."""


async def run(settings: Settings) -> None:
    """Supervise until SIGTERM or SIGINT. Raises `ApplianceError`."""
    readiness = Readiness()
    applied_dir, state_dir = settings.applied_dir, settings.state_dir
    runtime_dir, unit_dir = settings.runtime_dir, settings.unit_dir
    profiles = ManifestProfiles(applied_dir)
    await _until_readable(profiles, readiness)
    host = LinuxHost(
        gate_dir=settings.gate_dir,
        unit_dir=unit_dir,
        builds_dir=applied_dir / BUILDS,
        margin_bytes=settings.memory.margin,
    )
    clock = SystemClock()
    store = OperationStore(
        state_dir / "state.sqlite",
        keep_rows=settings.keep_operations,
        spool=runtime_dir / "operation.json",
    )
    await store.open()
    gateway = SocketGateway(settings.gateway_socket)
    backend, peaks = HttpBackend(), FilePeaks(state_dir)
    async with SystemdUnits(settings.jobs_socket, unit_dir) as units:
        memory = UnitMemory(units, clock)
        supervisor = Supervisor(
            profiles,
            units=units,
            memory=memory,
            backend=backend,
            gateway=gateway,
            host=host,
            commitment=FileCommitment(state_dir),
            store=store,
            peaks=peaks,
            tickets=FileRunTickets(runtime_dir / TICKET.name),
            clock=clock,
            settings=settings,
            on_look=lambda line: _looked(line, readiness, feed, control.feed),
        )
        ledger = MemorySampler(
            supervisor.last_look,
            units=units,
            host=host,
            peaks=peaks,
            clock=clock,
            settings=settings,
        )
        traffic = TrafficFigures(
            supervisor.last_look, gateway=gateway, backend=backend, clock=clock
        )
        stalls = StallWatch(supervisor.last_look, units=units, stats=traffic.stats, clock=clock)
        status = BoxStatus(
            supervisor,
            ledger,
            traffic,
            host=host,
            store=store,
            peaks=peaks,
            units=units,
            clock=clock,
            gateway_damage=DamageWatch(applied_dir).damage,
            stalls=stalls.stalls,
            verifications=supervisor.verifier.known,
            files=FileComparison(settings, clock.monotonic_s),
        )
        feed = StatusFeed(partial(status.document, StatusReader.WATCHER), supervisor.signature)
        gpus = GpuEvidenceSource(clock)
        tokens = FileTokens(state_dir)
        check = TokenCheck(
            tokens, account_of_uid, now_unix_s=clock.unix_s, monotonic_s=clock.monotonic_s
        )
        requests = ClientRequests(gateway)
        watch = StatusVerbs(
            feed,
            status=status.document,
            gpus=gpus.document,
            operations=status,
            events=supervisor.events,
            log=LogReader(host, clock, lambda: supervisor.last_look()[0]),
            tokens=check,
            requests=requests,
            counters=partial(counters_document, traffic, supervisor.tally),
            pages=EnginePageReader(supervisor.last_look, backend),
            resumed=supervisor.resumed,
        )
        control = ControlVerbs(
            supervisor,
            status=status.document,
            keys=FileKeys(state_dir),
            tokens=TokenDesk(tokens, account_of, clock.unix_s),
            requests=requests,
            now_unix_s=clock.unix_s,
            gpus=gpus.document,
            operations=status.operations,
        )
        by_token = TokenVerbs(control, check.operator, clock.monotonic_s)
        listeners = named_sockets()
        try:
            async with daemon_tasks() as tasks:
                for part in (
                    supervisor.run(),
                    ledger.run(),
                    stalls.run(),
                    traffic.run(),
                    supervisor.verifier.run(lambda: supervisor.current() is not None),
                    memory.run(
                        lambda: supervisor.last_look()[0],
                        is_operating=lambda: supervisor.current() is not None,
                    ),
                ):
                    tasks.create_task(part)
                # An apply may have told a supervisor that ended before it could tell the gateway.
                gateway.reload()
                tasks.create_task(gateway.run())
                tasks.create_task(_bus_lost(units))
                for unit, serve in _servers(control, watch, by_token).items():
                    if unit in listeners:
                        tasks.create_task(serve(listeners[unit]))
                    else:
                        _log.warning(
                            # systemd starts no socket beside its running service.
                            "%s passed no socket, so its clients get no answer: systemctl restart %s",
                            unit,
                            SUPERVISOR_UNIT,
                        )
                tasks.create_task(until_told(readiness, partial(_reload, supervisor)))
                # A reload may come as soon as systemd is told: without its handler it would end the process.
                await asyncio.sleep(0)
                readiness.ready()
                freeze_garbage()
        except* ToldToEndError:
            supervisor.leave()
            _log.info("the supervisor ends; models keep running")
        finally:
            await store.close()


def _looked(line: str, readiness: Readiness, *feeds: StatusFeed) -> None:
    """Tell systemd and those who watch that the supervisor has looked at the box."""
    readiness.alive(line)
    for feed in feeds:
        feed.notice()


def _servers(
    control: ControlVerbs, watch: StatusVerbs, by_token: TokenVerbs
) -> Mapping[str, Callable[[socket.socket], Coroutine[Any, Any, None]]]:
    """Return the server of each socket, by the name of its unit."""
    servers: dict[str, Callable[[socket.socket], Coroutine[Any, Any, None]]] = {
        STATUS_SOCKET_UNIT: watch.serve,
        SUPERVISOR_SOCKET_UNIT: partial(control.serve, read=read_from_operator),
    }
    if (uid := _uid(GATEWAY_USER, "no request can switch")) is not None:
        servers[REQUEST_SOCKET_UNIT] = partial(control.serve, read=ReadFromGateway(uid))
    if (uid := _uid(WEB_USER, "nobody can act by a token")) is not None:
        servers[TOKEN_SOCKET_UNIT] = partial(by_token.serve, read=ReadByToken(uid))
    return servers


def _uid(user: str, otherwise: str) -> int | None:
    """Return the number of a daemon's user; None: there is none, which the log says with its effect."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        _log.error("the user %s does not exist, so %s: run install.sh again", user, otherwise)
        return None


async def _until_readable(profiles: Profiles, readiness: Readiness) -> None:
    """Wait while neither the manifest nor its copy can be read.

    Without a manifest nothing may be decided, and systemd would only restart a process that ended.
    Models and gateway go on as they are; a signal ends the process, as always.
    """
    said = ""
    while True:
        try:
            profiles.load()
        except StoreError as error:
            if said != str(error):
                said = str(error)
                _log.error("%s", said)
            readiness.ready()
            readiness.alive(said)
        else:
            return
        await asyncio.sleep(_MANIFEST_EVERY_S)


def _reload(supervisor: Supervisor) -> None:
    try:
        supervisor.reload()
    except ApplianceError as error:
        _log.error("the applied profiles stay as they were: %s", error)


async def _bus_lost(units: SystemdUnits) -> None:
    """End the process when the bus is lost: it can observe nothing, and systemd restarts it."""
    await units.closed()
    raise UnitError("the connection to the system bus is lost")


def main() -> int:
    """Run the daemon; returns its exit status."""
    return run_daemon(run)

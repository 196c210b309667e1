"""Process of the health agent: assembles its parts and runs them until SIGTERM.

One TaskGroup: a part that dies ends the process, and systemd starts the process again. Models,
supervisor and gateway do not notice: nothing waits for the health agent.
"""

import asyncio
import logging
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from appliance.daemon_main import ToldToEndError, daemon_tasks, run_daemon, until_told
from appliance.health.agent import HealthAgent, QualityWatch, SpeedWatch
from appliance.health.alert_service import AlertService, ServiceSources
from appliance.health.answering.health_verbs import HealthVerbs
from appliance.health.answering.lease_desk import LeaseDesk
from appliance.health.clock import SystemHealthClock
from appliance.health.measuring.evidence import EvidenceReader
from appliance.health.measuring.prober import Prober
from appliance.health.measuring.profile_monitor import ProfileMonitor
from appliance.health.measuring.quality_monitor import STATE_KEY, QualityMonitor
from appliance.health.watching.state_watch import StateWatch
from appliance.model.errors import ApplianceError, StoreError
from appliance.model.names import HEALTH_SOCKET_UNIT, HEALTH_UNIT, VIEW_SOCKET_UNIT
from appliance.model.paths import CANARIES_DIR
from appliance.settings.tables import HealthSettings, Settings
from appliance.speed.canary_schedule import CanaryCadence
from appliance.speed.probe_schedule import Cadence
from appliance.system.applied.manifest import ManifestProfiles
from appliance.system.canary_files import CanaryDirectory
from appliance.system.daemon_clients import TokenOwners
from appliance.system.lane_client import SocketProbeLane
from appliance.system.sqlite.measurement_store import MeasurementStore
from appliance.system.sqlite.state_store import StateStore
from appliance.system.systemd.daemon import Readiness, freeze_garbage, named_sockets
from appliance.wire.async_client import open_conversation
from appliance.wire.conversation import ResultEvent
from appliance.wire.server import FEW
from appliance.wire.status_socket import STATUS, GpuEvidenceRequest
from appliance.wire.status_stream import StatusFollower
from appliance.wire.view_socket import VIEW

_log = logging.getLogger(__name__)

DATABASE: Final = "measurements.sqlite"
STATE_DATABASE: Final = "states.sqlite"
_OFF: Final = "nothing is measured: health.enabled is false"


async def run(settings: Settings) -> None:
    """Measure and watch until SIGTERM or SIGINT. Raises `ApplianceError`."""
    readiness = Readiness()
    clock = SystemHealthClock()
    store = MeasurementStore(settings.health.state_dir / DATABASE)
    why_off = "" if settings.health.enabled else _OFF
    try:
        await store.open()
    except StoreError as error:
        # Of a newer release: it is left alone, and said to whoever asks.
        _log.error("%s", error)
        why_off = f"nothing is measured: {error}"
    lane = SocketProbeLane(settings.lane_socket)
    desk = LeaseDesk(lane, clock)
    status_socket = settings.status_socket
    maker = WatchMaker(settings.health, status_socket, lane, store, clock)
    agent = HealthAgent(
        catalogue=ManifestProfiles(settings.applied_dir).load,
        make_watches=maker.watches,
        store=store,
        is_leased=desk.is_leased,
        clock=clock,
        on_alive=lambda text: readiness.tell(" · ".join([text, *alerts.troubles()])),
        why_off=why_off,
    )
    desk.on_change = agent.observe
    sources = ServiceSources(
        agent=agent,
        lane=lane,
        turn=maker.turn,
        ask_gpus=maker.ask_gpus,
        stores=lambda: [store.trouble] if store.trouble else [],
    )
    alerts = AlertService(settings, sources, clock, readiness.feed)
    await alerts.open()
    owners = TokenOwners(status_socket)
    states = StateStore(settings.health.state_dir / STATE_DATABASE)
    verbs = HealthVerbs(
        agent,
        store,
        desk,
        clock,
        alerts.verbs(),
        states=states,
        operator_of=owners.operator_of,
    )
    recorder = StateWatch(agent, states, store, clock, unresponsive=alerts.unresponsive)
    freeze_garbage()
    try:
        async with daemon_tasks() as tasks:
            documents = StatusFollower.on(status_socket).documents()
            tasks.create_task(agent.run(recorder.watched(alerts.watched(documents))))
            alerts.start(tasks)
            listeners = named_sockets()
            if (listener := _listener(listeners, HEALTH_SOCKET_UNIT)) is not None:
                tasks.create_task(verbs.serve(listener))
            if (listener := _listener(listeners, VIEW_SOCKET_UNIT)) is not None:
                tasks.create_task(verbs.serve(listener, VIEW, FEW))
            readiness.ready()
            tasks.create_task(until_told(readiness))
    except* ToldToEndError:
        _log.info("the health agent ends")
    finally:
        await alerts.end()
        await states.close()
        await store.close()


class WatchMaker:
    """Maker of the monitors of profiles, with what they share.

    Args:
        settings: Of the health agent.
        status_socket: The supervisor's, which reads the GPUs.
        lane: Lane of the gateway.
        store: Of the measurements, with the states of monitors that ran before.
        clock: Of the box.
    """

    def __init__(
        self,
        settings: HealthSettings,
        status_socket: Path,
        lane: SocketProbeLane,
        store: MeasurementStore,
        clock: SystemHealthClock,
    ) -> None:
        self._settings = settings
        self._status_socket = status_socket
        self._lane = lane
        self._store = store
        self._clock = clock
        self.turn = asyncio.Lock()
        """The lane takes one request at a time: what this process asks waits here, for its turn."""
        evidence = EvidenceReader(self.ask_gpus, clock)
        self._prober = Prober(lane, evidence, clock, turn=self.turn)
        self._canaries = CanaryDirectory(Path(CANARIES_DIR))

    async def watches(self, names: Sequence[str]) -> Mapping[str, tuple[SpeedWatch, QualityWatch]]:
        """Return the monitors of profiles, as the stored states left them."""
        states: dict[str, dict[str, str]] = defaultdict(dict)
        for (profile, key), state in (await self._store.states()).items():
            states[profile][key] = state
        return {
            name: (self._speed(name, states[name]), self._quality(name, states[name]))
            for name in names
        }

    def _speed(self, name: str, states: Mapping[str, str]) -> SpeedWatch:
        cadence = Cadence(
            interval_s=self._settings.probe_every, silent_after_s=self._settings.silent_after
        )
        return ProfileMonitor(
            name,
            prober=self._prober,
            store=self._store,
            clock=self._clock,
            cadence=cadence,
            states=states,
            trial_speed=self._settings.trial_speed,
        )

    def _quality(self, name: str, states: Mapping[str, str]) -> QualityWatch:
        cadence = CanaryCadence(
            interval_s=self._settings.canary_every, speed=self._settings.trial_speed
        )
        return QualityMonitor(
            name,
            lane=self._lane,
            store=self._store,
            clock=self._clock,
            canaries=self._canaries,
            cadence=cadence,
            turn=self.turn,
            state=states.get(STATE_KEY),
        )

    async def ask_gpus(self) -> Mapping[str, object] | None:
        """Ask the supervisor for the GPUs' state; None: it does not answer."""
        try:
            async with open_conversation(
                STATUS, self._status_socket, GpuEvidenceRequest()
            ) as events:
                answer = await anext(events, None)
        except ApplianceError:
            return None
        return answer.details if isinstance(answer, ResultEvent) else None


def _listener(listeners: Mapping[str, socket.socket], unit: str) -> socket.socket | None:
    listener = listeners.get(unit)
    if listener is None:
        _log.warning(
            # systemd starts no socket beside its running service.
            "%s passed no socket, so nobody gets an answer there: systemctl restart %s",
            unit,
            HEALTH_UNIT,
        )
    return listener


def main() -> int:
    """Run the health agent; returns its exit status."""
    return run_daemon(run)

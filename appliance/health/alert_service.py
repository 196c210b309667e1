"""Part of the process that tells people what is wrong, assembled.

==================  =====================================================================
`BoxObserver`       looks at the box
`Watchdog`          judges each look, and keeps what changed
`AlertStore`        alert book and outbox
`OutboxSender`      has messages sent
`Heartbeat`         tells the outside that all this works
`tell_return`       tells that an agent which was given up works again
==================  =====================================================================
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from secrets import token_bytes
from typing import Final

from appliance.alerts.book import AlertPolicy
from appliance.alerts.box_messages import BoxWords
from appliance.alerts.inhibition import AlertCircumstances, OwnNetwork, circumstances
from appliance.alerts.report import open_alerts
from appliance.alerts.snapshot import BoxLook
from appliance.health.agent import HealthAgent
from appliance.health.agent_failure import FILE as FAILURE_FILE
from appliance.health.agent_failure import tell_return
from appliance.health.answering.alert_verbs import AlertVerbs, SubjectDirectory
from appliance.health.box_view import BoxView
from appliance.health.clock import HealthClock, TrialClock, message_clock
from appliance.health.delivery_figures import DeliveryFigures
from appliance.health.heartbeat import Heartbeat
from appliance.health.message_renderer import MessageButtons, MessageRenderer
from appliance.health.outbox_sender import OutboxSender
from appliance.health.watching.box_observer import BoxObserver
from appliance.health.watching.checks import EngineChecks, UrlAnswer, WatchChecks
from appliance.health.watching.watchdog_loop import FRESH_S, StopWatch, Watchdog
from appliance.model.errors import StoreError
from appliance.model.measurements import BoxGpus
from appliance.model.status import AlertSection, StatusDocument
from appliance.model.targets import NTFY, TargetStanding
from appliance.presentation.health_sections import UNRESPONSIVE, with_alerts
from appliance.settings.tables import AlertSettings, Settings
from appliance.system.applied.installed_units import InstalledUnits
from appliance.system.applied.manifest import ManifestProfiles
from appliance.system.daemon_clients import AuditClient, CheckClient, NotifyClient
from appliance.system.files.regular import stamp
from appliance.system.ports import ProbeLane
from appliance.system.sqlite.alert_store import AlertStore
from appliance.system.systemd.unit_reader import SystemUnitReader, is_shutting_down
from appliance.system.target_names import TargetNamesFile
from appliance.wire.status_stream import Documents
from appliance.wire.typed_json import JsonValueError, from_json

_log = logging.getLogger(__name__)

DATABASE: Final = "alerts.sqlite"
HEARTBEAT_FILE: Final = "heartbeat.json"
MOST_TRIAL_SPEED: Final = 10.0
"""Bound of `trial_speed` here: a look a second, each of which takes some time of its own."""
_STUCK_S: Final = 600.0
"""Time without a message taken, while one waits, after which the outbox counts as stuck. One target that
takes none is named in the status, and stops no sign of life that others take."""
_WATCH_OUTBOX_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSources:
    """Parts of the process that the service looks through."""

    agent: HealthAgent
    lane: ProbeLane
    turn: asyncio.Lock
    """Turn of the lane, which takes one request at a time."""
    ask_gpus: Callable[[], Awaitable[Mapping[str, object] | None]]
    """Function that asks the supervisor for the GPUs."""
    stores: Callable[[], Sequence[str]]
    """Function that returns sentences about other stores that take no rows."""


class AlertService:
    """The service.

    Args:
        settings: Of the box.
        sources: Other parts of the process.
        clock: Of the box.
        feed: Called after each whole look.
    """

    def __init__(
        self,
        settings: Settings,
        sources: ServiceSources,
        clock: HealthClock,
        feed: Callable[[], None],
    ) -> None:
        state_dir = settings.health.state_dir
        alerts = settings.alerts
        self._sources = sources
        speed = min(settings.health.trial_speed, MOST_TRIAL_SPEED)
        self._machine = clock
        self._trial = TrialClock(clock, speed) if speed > 1 else None
        self._clock = pace = self._trial or clock
        self._is_enabled = alerts.enabled
        self._names = TargetNamesFile(settings.target_names)
        self._failure = state_dir / FAILURE_FILE
        self._words = BoxWords(
            host=socket.gethostname(), clock=message_clock(alerts.time_zone, pace.unix_s)
        )
        self._seen: object = None
        self._watches = tuple(one.name for one in settings.watch)
        self._checker = CheckClient(settings.check_socket)
        self.notifier = NotifyClient(settings.notify_socket)
        self.store = AlertStore(state_dir / DATABASE)
        self.heartbeat = Heartbeat(
            notifier=self.notifier,
            targets=lambda: [one.name for one in self.targets() if one.kind == NTFY],
            changes=lambda: stamp(self._names.path),
            trouble=self._no_beat,
            words=self._words,
            silent_after_s=alerts.box_silent_after,
            reboot_takes_s=alerts.reboot_takes,
            record=state_dir / HEARTBEAT_FILE,
            clock=clock,
        )
        self._network = OwnNetwork(lambda: self.heartbeat.facts.unreached_unix_s)
        self._outbox_trouble = ""
        self._is_offline = False
        self._targets_change: object = None
        self._feed = feed
        self._looked = asyncio.Event()
        self._judged = asyncio.Event()
        """Set where it may have changed which engines answer."""
        self._status: StatusDocument | None = None
        """Last status document of the supervisor."""
        self._units = SystemUnitReader(str(settings.unit_dir), pace.monotonic_s)
        buttons = MessageButtons(alerts.button_url, self.store, token_bytes).buttons
        renderer = MessageRenderer(self._words, buttons, alerts.button_url, pace)
        self.sender = OutboxSender(self.store, self.notifier, pace, renderer.render)
        self.figures = DeliveryFigures(
            self.store,
            heartbeat=self.heartbeat.present_facts,
            targets=self.targets,
            trouble=lambda: self._names.trouble or self.sender.trouble or "",
            attempts=self.sender.attempts,
            enabled=alerts.enabled,
            clock=pace,
        )
        self.watchdog = Watchdog(
            look=self._observer(settings).look,
            circumstances=self.circumstances,
            store=self.store,
            targets=self.targets,
            policy=policy_of(alerts),
            on_commit=lambda _transitions: self.sender.wake(),
            on_turn=self._on_turn,
            clock=pace,
        )
        self._stops = StopWatch(self.watchdog)

    async def open(self) -> None:
        """Open the store; one of a newer release is left alone, and alerts are kept in memory."""
        try:
            await self.store.open()
        except StoreError as error:
            _log.error("alerts are kept in memory alone: %s", error)

    def verbs(self) -> AlertVerbs:
        """Return the handler of the operators' requests about alerts."""
        subjects = SubjectDirectory(
            lambda: self.watchdog.book, self._sources.agent.profiles, self._watches
        )
        return AlertVerbs(self.watchdog, self.store, self.figures, subjects, self._clock)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run everything in a task group."""
        tasks.create_task(self.watchdog.run())
        tasks.create_task(self.show_unresponsive())
        if self._is_enabled:
            tasks.create_task(self.send())
            tasks.create_task(self._watch_outbox())
            tasks.create_task(self._beat())
            tasks.create_task(
                tell_return(
                    self.notifier,
                    self.target_names,
                    words=self._words,
                    path=self._failure,
                    clock=self._clock,
                    is_fresh=self.watchdog.is_fresh,
                )
            )

    async def send(self) -> None:
        """Send from the first look on: what waits since before a boot may be about what the boot has ended.

        An agent whose every look fails sends nothing; systemd ends it, and its failure is told.
        """
        await self._looked.wait()
        await self.sender.run()

    async def end(self) -> None:
        """End in order: tell the outside why, close the store and the bus."""
        if self._is_enabled and self.heartbeat.facts.armed:
            await self.heartbeat.end(is_shutdown=await is_shutting_down())
        await self.figures.close()
        await self._units.close()
        await self.store.close()

    def targets(self) -> Sequence[TargetStanding]:
        """Return the targets of messages; none where `alerts.enabled` is false."""
        return self._names.targets() if self._is_enabled else ()

    def target_names(self) -> Sequence[str]:
        """Return their names."""
        return [one.name for one in self.targets()]

    def troubles(self) -> Sequence[str]:
        """Return sentences about what keeps messages from people."""
        stores = (self.store.trouble, self._names.trouble, self.sender.trouble)
        return [text for text in (*stores, self.heartbeat.facts.trouble) if text]

    async def watched(self, documents: Documents) -> Documents:
        """Yield status documents on to the agent, and look soon after one that tells a change."""
        async for document in documents:
            self._status = document
            yield document
            self._judged.set()
            seen = notable(self._sources.agent.view)
            if seen != self._seen:
                self._seen = seen
                self.watchdog.look_soon()
            if document is not None:
                await self._stops.take(document)

    def _observer(self, settings: Settings) -> BoxObserver:
        sources = self._sources
        clock = self._clock
        directories = [
            str(one)
            for one in (settings.health.state_dir, settings.state_dir, settings.applied_dir)
        ]
        return BoxObserver(
            clock=clock,
            view=self._view,
            catalogue=ManifestProfiles(settings.applied_dir).load,
            units=self._units.units,
            booted_unix_s=lambda: self._units.booted_unix_s,
            engines=EngineChecks(sources.lane, clock, sources.turn),
            watches=WatchChecks(settings.watch, self._ask_url, clock),
            gpus=self._gpus,
            listeners=AuditClient(settings.audit_socket).listeners,
            drift=InstalledUnits(settings.unit_dir, settings.applied_dir).drift,
            directories=directories,
            speeds=sources.agent.reports,
            quality_lost=sources.agent.quality_lost,
            stores=sources.stores,
        )

    def _view(self) -> BoxView:
        """Return the box as the supervisor described it, as old on the clock of the looks as it is."""
        view = self._sources.agent.view
        if self._trial is None:
            return view
        age_s = self._machine.monotonic_s() - view.read_s
        return replace(view, read_s=self._trial.monotonic_s() - age_s)

    def unresponsive(self) -> Sequence[str]:
        """Return the profiles whose engines run and do not answer, by the rule of every status that is shown."""
        alerts = [asdict(row) for row in open_alerts(self.watchdog.book, {})]
        shown = with_alerts(self._status or StatusDocument(), AlertSection(alerts=alerts))
        return [row.name for row in shown.profiles if row.state == UNRESPONSIVE]

    async def show_unresponsive(self) -> None:
        """Have the gateway say which engines do not answer, for ever.

        It does so as long as its connection lasts, which ends with this process; systemd's watchdog ends a process
        that no longer looks.
        """
        told: Sequence[str] = ()
        async with asyncio.TaskGroup() as tasks:
            showing: asyncio.Task[None] | None = None
            while True:
                self._judged.clear()
                names = self.unresponsive()
                if names != told or (showing is not None and showing.done()):
                    if showing is not None:
                        showing.cancel()
                    told, showing = names, None
                    if names:
                        showing = tasks.create_task(self._sources.lane.show_unresponsive(names))
                await self._judged.wait()

    async def _watch_outbox(self) -> None:
        """Note whether messages go, for the heartbeat, and follow changes of the targets."""
        while True:
            await self.follow_targets()
            oldest_s = (await self.store.counts()).oldest_due_unix_s
            taken = [await self.store.last_sent(name) for name in self.target_names()]
            last_s = max((at_s for at_s in taken if at_s is not None), default=0.0)
            waits = oldest_s is not None and self._clock.unix_s() - oldest_s > _STUCK_S
            stuck = waits and last_s < (oldest_s or 0.0)
            self._outbox_trouble = f"no message has gone for {_STUCK_S:.0f} s" if stuck else ""
            await self._clock.sleep_until(self._clock.monotonic_s() + _WATCH_OUTBOX_S)

    async def follow_targets(self) -> None:
        """After a change of the targets: try again at once, and drop what waits for removed ones."""
        change = (names := self.target_names(), stamp(self._names.path))
        if change == self._targets_change or self._names.trouble:
            return
        self._targets_change = change
        await self.sender.forget(names)
        self.sender.retry_now()

    async def _ask_url(self, url: str, timeout_s: float) -> UrlAnswer | None:
        result = await self._checker.check(url, timeout_s)
        return None if result is None else UrlAnswer(is_up=result.up, detail=result.detail)

    async def _gpus(self) -> BoxGpus | None:
        """Return the GPUs, their reading as old on the clock of the looks as it is."""
        document = await self._sources.ask_gpus()
        try:
            found = None if document is None else from_json(BoxGpus, document)
        except JsonValueError:
            return None
        if found is None or self._trial is None:
            return found
        age_s = self._machine.monotonic_s() - found.taken_s
        return replace(found, taken_s=self._trial.monotonic_s() - age_s)

    def circumstances(self, look: BoxLook) -> AlertCircumstances:
        """Return what explains alerts at a look; messages are tried at once when our network is back."""
        found = circumstances(look)
        down_since = self._network.down_since(look, found.remote_watches)
        if self._is_offline and down_since is None:
            self.sender.retry_now()
        self._is_offline = down_since is not None
        return replace(found, internet_down_since=down_since)

    def _on_turn(self) -> None:
        self._feed()
        self._looked.set()
        self._judged.set()

    async def _beat(self) -> None:
        """Send signs of life from the first look on, or from when it is overdue."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FRESH_S):
                await self._looked.wait()
        await self.heartbeat.run()

    def _no_beat(self) -> str:
        """Return why there is no heartbeat now, as a sentence; empty: there is one."""
        if not self.watchdog.is_fresh():
            return f"no look at the box for {FRESH_S:.0f} s"
        return self._outbox_trouble


def notable(view: BoxView) -> object:
    """Return what of a view asks for a look when it changes: everything but figures."""
    states = tuple((name, one.state, one.mark) for name, one in view.profiles.items())
    phase = None if view.running is None else (view.running.id, view.running.phase)
    ended = None if view.ended is None else view.ended.id
    return view.connected, view.hold, phase, ended, states, tuple(view.watch_marks.items())


def policy_of(alerts: AlertSettings) -> AlertPolicy:
    """Return the policy of the alert book that the settings ask for."""
    begin, _, end = alerts.quiet_hours.partition("-")
    return AlertPolicy(time_zone=alerts.time_zone, quiet_from=begin or None, quiet_to=end or None)

"""Life of a daemon that systemd runs: settings, log, signals, exit status.

=======  ======================================================================================
Status   Why
=======  ======================================================================================
0        SIGTERM or SIGINT, also where the end is cut short
1        a part of the daemon cannot go on; the journal says why, and systemd starts it again
=======  ======================================================================================

With settings that are wrong it waits for others (`appliance.settings.snapshot`).
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Final, Never

from appliance.model.errors import ApplianceError
from appliance.model.journal_events import JournalEvent, event_fields
from appliance.model.plain_text import plain
from appliance.settings.snapshot import SettingsWait, settings_sources, take_snapshot
from appliance.settings.tables import Settings
from appliance.system.systemd.daemon import Readiness, log_to_journal, named_sockets
from appliance.wire.control import Exit

_log = logging.getLogger(__name__)

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
Daemon = Callable[[Settings], Coroutine[None, None, None]]


class ToldToEndError(Exception):
    """Signal SIGTERM or SIGINT."""


def run_daemon(
    daemon: Daemon,
    read: Callable[[], Settings] = take_snapshot,
    wait: Callable[[str], None] | None = None,
) -> int:
    """Read the settings and run a daemon until it ends; returns the exit status.

    Args:
        daemon: What to run; raises `ApplianceError` where it cannot go on.
        read: Reads the settings. Raises `SettingsError`.
        wait: Waits until they may be others; given what is wrong. None: `SettingsWait`.
    """
    settings = _readable_settings(read, wait)
    log_to_journal(settings.log_level)
    status = Exit.OK
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(_whole(daemon, settings))
        except* ApplianceError as group:
            for leaf in _leaves(group):
                _log.error("%s", leaf, extra=event_fields(JournalEvent.DAEMON_FAILED))
            status = Exit.FAILED
    return status


async def _whole(daemon: Daemon, settings: Settings) -> None:
    """Run a daemon; an end that is cut short is no failure, which people are told of as of a dead daemon.

    Nobody cancels a daemon: a cancellation is that of something that it waited for.
    """
    try:
        await daemon(settings)
    except asyncio.CancelledError:
        _log.warning("the daemon's end was cut short: a wait was cancelled", exc_info=True)


def _readable_settings(
    read: Callable[[], Settings], wait: Callable[[str], None] | None
) -> Settings:
    said, seen = "", settings_sources(os.environ)
    listeners: list[socket.socket] = []
    try:
        while True:
            try:
                return read()
            except ApplianceError as error:
                problem = str(error)
            if problem != said:
                said = problem
                sys.stderr.writelines(f"<3>{plain(line)}\n" for line in problem.splitlines())
            if wait is None:
                listeners = list(named_sockets().values())
                wait = SettingsWait(listeners, Readiness(), seen=seen).wait
            wait(problem)
    finally:
        for listener in listeners:
            listener.detach()  # The daemon takes the descriptors anew.


@contextlib.asynccontextmanager
async def daemon_tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """Give the task group of a daemon, after whose end the clean-up may use timeouts.

    A group whose part fails cancels its own task, and in Python 3.11 does not take that back where the
    task waits for the group already: each `asyncio.timeout` that expires in it from then on raises
    `CancelledError` in place of `TimeoutError`.
    """
    task = asyncio.current_task()
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup:
        while task is not None and task.cancelling():
            task.uncancel()
        raise


async def until_told(readiness: Readiness, on_reload: Callable[[], None] | None = None) -> Never:
    """Raise `ToldToEndError` on SIGTERM or SIGINT, and end so the task group of a daemon.

    Args:
        readiness: Is told of the end.
        on_reload: Called on SIGHUP; None: that signal is left alone.
    """
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, told.set)
    if on_reload is not None:
        loop.add_signal_handler(signal.SIGHUP, on_reload)
    await told.wait()
    readiness.stopping()
    raise ToldToEndError


def _leaves(group: BaseExceptionGroup[ApplianceError]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found

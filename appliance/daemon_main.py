"""Life of a daemon that systemd runs: settings, log, signals, exit status.

=======  ======================================================================================
Status   Why
=======  ======================================================================================
0        SIGTERM or SIGINT
1        a part of the daemon cannot go on; the journal says why, and systemd starts it again
78       the settings are wrong
=======  ======================================================================================
"""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Final, Never

from appliance.adapters.systemd.daemon import Readiness, log_to_journal
from appliance.domain.errors import ApplianceError
from appliance.domain.journal_events import JournalEvent, event_fields
from appliance.protocol.control import Exit
from appliance.settings_snapshot import SettingsSnapshot, take_snapshot

_log = logging.getLogger(__name__)

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
Daemon = Callable[[SettingsSnapshot], Coroutine[None, None, None]]


class ToldToEndError(Exception):
    """Signal SIGTERM or SIGINT."""


def run_daemon(daemon: Daemon, read: Callable[[], SettingsSnapshot] = take_snapshot) -> int:
    """Read the settings and run a daemon until it ends; returns the exit status.

    Args:
        daemon: What to run; raises `ApplianceError` where it cannot go on.
        read: Reads the settings. Raises `SettingsError`.
    """
    try:
        settings = read()
    except ApplianceError as error:
        sys.stderr.writelines(f"<3>{line}\n" for line in str(error).splitlines())
        return Exit.CONFIG
    log_to_journal(settings.log_level)
    status = Exit.OK
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(daemon(settings))
        except* ApplianceError as group:
            for leaf in _leaves(group):
                _log.error("%s", leaf, extra=event_fields(JournalEvent.DAEMON_FAILED))
            status = Exit.FAILED
    return status


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

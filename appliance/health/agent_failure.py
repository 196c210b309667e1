"""Message that the health agent is dead, sent without it; and, once it lives, that it does again.

systemd runs this module as ``appliance-health-failed.service`` when it has given the agent up, as the
agent's user. It needs the notifier and nothing else: no settings, no store, no supervisor. A file in the
agent's state directory remembers the failure until somebody was told of its end.
"""

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from appliance.alerts.box_messages import BoxWords, agent_back, agent_dead
from appliance.health.clock import HealthClock, SystemHealthClock, message_clock
from appliance.model import paths
from appliance.model.alerts import Message, SendOutcome, SendResult
from appliance.model.errors import ApplianceError
from appliance.model.json_reader import decode_json
from appliance.system.daemon_clients import NotifyClient
from appliance.system.files.durable import write_file
from appliance.system.systemd.daemon import log_to_journal
from appliance.system.target_names import TargetNamesFile
from appliance.wire.typed_json import from_json

_log = logging.getLogger(__name__)

_IDENTIFIER: Final = "appliance-health-failed"

FILE: Final = "agent-failure.json"
AGAIN_IN: Final = "15 min"
"""OnActiveSec= of appliance-health-again.timer."""
_PAUSES_S: Final = (5.0, 15.0, 60.0, 120.0, 240.0, 300.0)
"""Pauses between attempts; together below TimeoutStartSec= of the unit."""
_TOLD_AGAIN_S: Final = 3600.0
"""Time after which there is another message about an agent that is given up again and again."""
_RETURN_PAUSE_S: Final = 30.0
_MOST_RECORD_BYTES: Final = 4096


class FailureNotifier(Protocol):
    """Notifier, as far as it is used here."""

    async def send(self, target: str, message: Message) -> SendResult:
        """Send a message now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFailure:
    """Failure of the agent about which there are messages."""

    dead_unix_s: float
    told_unix_s: float | None = None
    """Time of the last message; None: none could be sent."""


def read_failure(path: Path) -> AgentFailure | None:
    """Return the failure that is remembered; None: none is."""
    try:
        with path.open("rb") as file:
            return from_json(AgentFailure, decode_json(file.read(_MOST_RECORD_BYTES)))
    except (OSError, ValueError):
        return None


async def tell_failure(
    notifier: FailureNotifier,
    targets: Sequence[str],
    *,
    words: BoxWords,
    path: Path,
    clock: HealthClock,
    result: str,
) -> bool:
    """Tell each target that the agent is dead, for a quarter of an hour at most; True: all know it.

    Args:
        notifier: Reaches other machines.
        targets: Names.
        words: Name of this machine, and its clock.
        path: File that remembers the failure.
        clock: Of the box.
        result: Result of the agent's unit; empty: not known.
    """
    now_s = clock.unix_s()
    failure = read_failure(path) or AgentFailure(dead_unix_s=now_s)
    if failure.told_unix_s is not None and 0 <= now_s - failure.told_unix_s < _TOLD_AGAIN_S:
        return True
    _remember(path, failure)
    message = agent_dead(words, now_unix_s=failure.dead_unix_s, result=result, again_in=AGAIN_IN)
    left = list(targets)
    for pause_s in (*_PAUSES_S, None):
        left = [name for name in left if not await _is_told(notifier, name, message)]
        if len(left) < len(targets):
            _remember(path, replace(failure, told_unix_s=clock.unix_s()))
        if not left or pause_s is None:
            break
        await clock.sleep_until(clock.monotonic_s() + pause_s)
    return not left


async def tell_return(
    notifier: FailureNotifier,
    targets: Callable[[], Sequence[str]],
    *,
    words: BoxWords,
    path: Path,
    clock: HealthClock,
    is_fresh: Callable[[], bool],
) -> None:
    """Tell, once the agent watches again after a failure, that it does; then forget the failure."""
    failure = read_failure(path)
    if failure is None:
        return
    await clock.sleep_until(clock.monotonic_s() + _RETURN_PAUSE_S)
    while not is_fresh():
        await clock.sleep_until(clock.monotonic_s() + _RETURN_PAUSE_S)
    back = agent_back(words, dead_unix_s=failure.dead_unix_s, now_unix_s=clock.unix_s())
    left = list(targets())
    while left := [name for name in left if not await _is_told(notifier, name, back)]:
        await clock.sleep_until(clock.monotonic_s() + _RETURN_PAUSE_S)
    _forget(path)


async def _is_told(notifier: FailureNotifier, name: str, message: Message) -> bool:
    """Try once; True also where the target refuses for good."""
    result = await notifier.send(name, message)
    if result.outcome is SendOutcome.RETRY:
        _log.warning("%s is not told yet: %s", name, result.text)
    return result.outcome is not SendOutcome.RETRY


def _remember(path: Path, failure: AgentFailure) -> None:
    try:
        write_file(path, json.dumps(asdict(failure)), mode=0o600)
    except ApplianceError as error:
        _log.warning("%s", error)  # the message matters more


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)


def main() -> int:
    """Tell that the agent is dead; returns the exit status."""
    log_to_journal("INFO", _IDENTIFIER)
    names = Path(paths.APPLIED_DIR) / paths.TARGET_NAMES
    told = asyncio.run(
        tell_failure(
            NotifyClient(Path(paths.NOTIFY_SOCKET)),
            [target.name for target in TargetNamesFile(names).targets()],
            words=BoxWords(host=socket.gethostname(), clock=message_clock()),
            path=Path(paths.HEALTH_STATE_DIR) / FILE,
            clock=SystemHealthClock(),
            result=os.environ.get("MONITOR_SERVICE_RESULT", ""),
        )
    )
    return 0 if told else 1


if __name__ == "__main__":
    sys.exit(main())

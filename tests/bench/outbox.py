"""Delivery of alerts over kills and failures: ``python -m tests.bench.outbox [ALERTS] [KILLS] [SEED]``.

The real store, sender and notifier, each in a process as on a box, and a server that speaks ntfy's publish
API. Agent and notifier are killed (SIGKILL) at random moments, spread over the run; the server ends
connections, is slow, and answers 429, 500 and 302 in between. Back-offs pass twenty times as fast. The last
line is JSON::

    alerts           alerts that were made
    kills            processes that were killed
    faults           requests that the server refused
    lost             alerts of which no message arrived, or no message that they are over
    duplicates       messages that arrived again
    out_of_order     messages of a subject that first arrived after a later one
    doubled_entries  entries of a phone beyond one for each alert
"""

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from appliance.model.names import NOTIFY_SOCKET_UNIT
from tests.bench.outbox_agent import ROW, TARGET, ends
from tests.fakes.ntfy_server import NtfyServer, Received

ALERTS: Final = 10_000
KILLS: Final = 66
_ALERTS_A_FAULT: Final = 100
_SPEED: Final = 20.0
_MOST_S: Final = 600.0
ROOT: Final = Path(__file__).parents[2]
_NOTIFIER: Final = (
    "import asyncio, os, sys; os.dup2(int(sys.argv[1]), 3);"
    f" os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1',"
    f" LISTEN_FDNAMES={NOTIFY_SOCKET_UNIT!r});"
    " from appliance.notifier.process import run; asyncio.run(run(None))"
)
_ROW: Final = re.compile(rf"^{ROW}(\d+)\Z", re.MULTILINE)
_BAD_ANSWERS: Final[Sequence[Mapping[str, Any]]] = (
    {"status": 500, "times": 2},
    {"status": 429, "retry_after": "4", "times": 1},
    {"status": 302, "times": 1},
    {"hang_up": "before", "times": 3},
    {"delay_s": 0.2, "times": 4},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxScore:
    """Result of a run."""

    alerts: int
    kills: int
    faults: int
    lost: int
    duplicates: int
    out_of_order: int
    doubled_entries: int


class KilledParts:
    """Agent and notifier, started again whenever they end, as systemd does it."""

    def __init__(self, folder: Path, address: str, alerts: int) -> None:
        self._folder = folder
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "notify.sock"))
        self._listener.listen(128)
        name = "targets"
        url = f"ntfy://{address}/alerts"
        (folder / name).write_text(f'[[target]]\nname = "{TARGET}"\nurl = "{url}"\n')
        (folder / name).chmod(0o600)
        self._epoch_s, self._alerts = time.time(), alerts
        self.notifier = self._start_notifier()
        self.agent = self._start_agent()

    def _start_notifier(self) -> subprocess.Popen[bytes]:
        number = self._listener.fileno()
        return subprocess.Popen(
            [sys.executable, "-c", _NOTIFIER, str(number)],
            cwd=ROOT,
            env={**os.environ, "CREDENTIALS_DIRECTORY": str(self._folder)},
            pass_fds=[number],
        )

    def _start_agent(self) -> subprocess.Popen[bytes]:
        paths = (self._folder / "alerts.sqlite", self._folder / "notify.sock")
        numbers = (self._alerts, self._epoch_s, _SPEED)
        command = [sys.executable, "-m", "tests.bench.outbox_agent", *map(str, (*paths, *numbers))]
        return subprocess.Popen(command, cwd=ROOT)

    def kill(self, *, agent: bool) -> None:
        """Kill one of them, and start it again."""
        process = self.agent if agent else self.notifier
        process.send_signal(signal.SIGKILL)
        process.wait()
        if agent:
            self.agent = self._start_agent()
        else:
            self.notifier = self._start_notifier()

    def revive(self) -> bool:
        """Start again what has ended by itself; returns whether the agent has done its work."""
        if self.notifier.poll() is not None:
            self.notifier = self._start_notifier()
        status = self.agent.poll()
        if status not in {None, 0}:
            sys.stderr.write(f"the agent has ended with {status}\n")
            self.agent = self._start_agent()
        return status == 0

    def close(self) -> None:
        """End both."""
        for process in (self.agent, self.notifier):
            process.kill()
            process.wait()
        self._listener.close()


def run_outbox(alerts: int, kills: int, seed: int) -> OutboxScore:
    """Make alerts until all are told, and return what arrived."""
    chance = random.Random(seed)  # noqa: S311 - a run that can be repeated
    with tempfile.TemporaryDirectory() as folder, NtfyServer() as server:
        parts = KilledParts(Path(folder), server.address, alerts)
        try:
            done = _disturb(
                parts,
                server,
                messages=alerts + len(ends(alerts)),
                kills=kills,
                faults=2 + alerts // _ALERTS_A_FAULT,
                chance=chance,
            )
        finally:
            parts.close()
        return _score(server, alerts, done)


def _disturb(
    parts: KilledParts,
    server: NtfyServer,
    *,
    messages: int,
    kills: int,
    faults: int,
    chance: random.Random,
) -> int:
    """Kill and fail at marks of the progress until all is told; returns the number of kills."""
    marks = sorted(chance.uniform(0, 0.97 * messages) for _ in range(kills))
    wrongs = sorted(chance.uniform(0, 0.97 * messages) for _ in range(faults))
    ends_s, killed = time.monotonic() + _MOST_S, 0
    while not parts.revive() and time.monotonic() < ends_s:
        time.sleep(0.01)  # real time: the processes are real
        took = server.requests.served
        if wrongs and took >= wrongs[0]:
            wrongs.pop(0)
            with server.lock:
                server.control(chance.choice(_BAD_ANSWERS))
        if marks and took >= marks[0]:
            marks.pop(0)
            time.sleep(chance.uniform(0, 0.05))  # real time: at any point of a message
            parts.kill(agent=chance.random() < 0.6)
            killed += 1
    return killed


def _score(server: NtfyServer, alerts: int, kills: int) -> OutboxScore:
    arrived = [one for one in server.inbox.delivered() if one.event == "message"]
    told: dict[int, set[bool]] = defaultdict(set)
    for one in arrived:
        for number in _alerts_in(one):
            told[number].add(_is_over(one))
    over = ends(alerts)
    lost = [
        number
        for number in range(1, alerts + 1)
        if not told[number] or (number in over and True not in told[number])
    ]
    times = Counter(_row_of(one) for one in arrived)
    entries = server.inbox.entries()
    return OutboxScore(
        alerts=alerts,
        kills=kills,
        faults=server.requests.refused,
        lost=len(lost),
        duplicates=sum(count - 1 for count in times.values()),
        out_of_order=sum(1 for _ in _misplaced(arrived)),
        doubled_entries=len(entries) - len({one.sequence_id for one in entries} & _ids(entries)),
    )


def _ids(entries: Sequence[Any]) -> set[str]:
    """Return one sequence id for each alert that entries are about."""
    by_alert = {number: one.sequence_id for one in entries for number in _alerts_in(one.shown)}
    return set(by_alert.values())


def _alerts_in(message: Received) -> Iterator[int]:
    for line in (message.title, *message.message.splitlines()):
        for found in re.findall(r"#A(\d+)", line):
            yield int(found)


def _is_over(message: Received) -> bool:
    return message.title.startswith("▲")


def _row_of(message: Received) -> int:
    match = _ROW.search(message.message)
    assert match is not None
    return int(match[1])


def _misplaced(arrived: Sequence[Received]) -> Iterator[int]:
    """Yield the rows of messages that first arrived after a later one of their subject."""
    seen: set[int] = set()
    last: dict[str, int] = defaultdict(int)
    for one in arrived:
        row, subject = _row_of(one), one.title.split()[1]
        if row in seen:
            continue
        seen.add(row)
        if row < last[subject]:
            yield row
        last[subject] = max(last[subject], row)


def main() -> None:
    """Print the figures."""
    given = [int(text) for text in sys.argv[1:]]
    alerts, kills, seed = (*given, *(ALERTS, KILLS, 1)[len(given) :])
    began_s = time.monotonic()
    score = run_outbox(alerts, kills, seed)
    took_s = round(time.monotonic() - began_s, 1)
    figures = {name: getattr(score, name) for name in OutboxScore.__dataclass_fields__}
    sys.stdout.write(json.dumps({**figures, "seconds": took_s}) + "\n")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()

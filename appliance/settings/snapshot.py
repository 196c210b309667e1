"""Settings of the daemons, which a short child process reads.

Reading the settings takes pydantic, pydantic-settings and tomlkit, about 10 MiB for as long as a
process lives. `appliance.settings.loader` reads them in a child and prints them; a daemon imports
none of it. A daemon reads its settings once, at its start. It keeps what the child printed in its cache
directory, and starts without a child while nothing that the settings are read from has changed.

A daemon waits for settings that can be read. One that ended would be started again and fail again, by systemd or by the
next client of its socket. So it stays, reports to systemd and its clients what is wrong, and goes on by itself once
anything changes that the settings are read from.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from appliance import __version__
from appliance.model.errors import SettingsError, StoreError
from appliance.model.json_reader import decode_json
from appliance.model.paths import SETTINGS_FILE
from appliance.settings.tables import ENVIRONMENT_PREFIX, FILE_VARIABLE, Settings
from appliance.system.files.durable import write_file
from appliance.system.files.regular import read_small_file, stamp
from appliance.system.systemd.daemon import Readiness
from appliance.wire.conversation import refusal_line
from appliance.wire.typed_json import from_json

CACHED: Final = "settings.json"
"""File in a daemon's cache directory."""
_CACHE_VARIABLE: Final = "CACHE_DIRECTORY"
"""Variable of systemd.exec(5), from CacheDirectory= of the unit."""
_MOST_CACHED_BYTES: Final = 1 << 20
PRINTER: Final = (sys.executable, "-I", "-m", "appliance.settings.loader")
_TIMEOUT_S: Final = 45.0
"""Less than the TimeoutStartSec= of the daemons; a busy box takes 7 s."""
_MOST_ERROR_CHARACTERS: Final = 16_384
_LOOK_EVERY_S: Final = 1.0
_REQUEST_WITHIN_S: Final = 0.2
_MOST_REQUEST_BYTES: Final = 1 << 16
_SENTENCE: Final = b"the settings cannot be read: appliance config validate\n"
_UNAVAILABLE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 10\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_SENTENCE), _SENTENCE)
)
_READ_AGAIN_S: Final = 60.0
"""Time after which the settings are read again without a change: what failed may have been their reader."""


def take_snapshot(
    printer: Sequence[str] = PRINTER, env: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of this box, from the daemon's cache or from a child process.

    Args:
        printer: Command that prints them, or its error with a status that is not 0.
        env: The environment; None: this process's. Without a cache directory in it nothing is kept.

    Raises:
        SettingsError: one line for everything that is wrong.
    """
    env = os.environ if env is None else env
    if not (directory := env.get(_CACHE_VARIABLE)):
        return snapshot_of(_printed(printer))
    cache, sources = Path(directory) / CACHED, settings_sources(env)
    if (found := _cached(cache, sources)) is not None:
        return found
    document = _printed(printer)
    snapshot = snapshot_of(document)
    # A file that has changed meanwhile may have been read before or after.
    if sources == settings_sources(env):
        with contextlib.suppress(StoreError):  # A full disk costs a child at the next start.
            write_file(cache, json.dumps({"sources": sources, "settings": document}), mode=0o600)
    return snapshot


def settings_sources(env: Mapping[str, str]) -> Mapping[str, object]:
    """Return all that the settings are read from, as JSON has it: file, variables, and our own code."""
    code = Path(__file__)
    return {
        "version": __version__,
        "code": [str(code), list(stamp(code) or ())],
        "file": list(stamp(Path(env.get(FILE_VARIABLE) or SETTINGS_FILE)) or ()),
        "variables": {k: v for k, v in sorted(env.items()) if k.startswith(ENVIRONMENT_PREFIX)},
    }


def _cached(cache: Path, sources: Mapping[str, object]) -> Settings | None:
    """Return the settings that were read from the same sources; None: there are none, or no longer."""
    try:
        kept = decode_json(read_small_file(cache, _MOST_CACHED_BYTES))
        if kept["sources"] == sources:
            return snapshot_of(kept["settings"])
    except (OSError, ValueError, TypeError, LookupError, SettingsError):
        pass  # Whatever it is, the settings are read anew and kept in its place.
    return None


def _printed(printer: Sequence[str]) -> str:
    """Return the document that a child prints. Raises `SettingsError`."""
    try:
        done = subprocess.run(  # noqa: S603 - the command is ours
            printer,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SettingsError(f"the settings cannot be read: {_why(error)}") from error
    if done.returncode != 0:
        text = done.stderr.strip()[-_MOST_ERROR_CHARACTERS:]
        raise SettingsError(
            text or f"the settings cannot be read: their reader ended with {done.returncode}"
        )
    return done.stdout


def snapshot_of(document: str) -> Settings:
    """Return the settings in a printed document, which has every one of them. Raises `SettingsError`."""
    try:
        table = decode_json(document)
        found = from_json(Settings, table, dec_hook=_path)
        if decode_json(json.dumps(asdict(found), default=str)) != table:
            raise ValueError("other settings than those of this release")  # noqa: TRY301
    except ValueError as error:
        raise SettingsError(f"the settings cannot be read: their reader printed {error}") from error
    return found


def _path(_kind: type, value: object) -> object:
    return Path(str(value))


def _why(error: OSError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, OSError):
        return error.strerror or "no child process"
    return f"no answer in {_TIMEOUT_S:.0f} s"


class SettingsWait:
    """Wait until the settings may be others.

    Args:
        listeners: The daemon's sockets, whose clients are refused meanwhile.
        readiness: Shows what is wrong in the unit's status.
        seen: What the settings were read from when that failed.
        sources: Returns the same of now.
        look_every_s: Pause between two looks at the sources.
    """

    def __init__(
        self,
        listeners: Iterable[socket.socket],
        readiness: Readiness,
        *,
        seen: Mapping[str, object],
        sources: Callable[[], Mapping[str, object]] = lambda: settings_sources(os.environ),
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        self._listeners = list(listeners)
        self._readiness = readiness
        self._sources = sources
        self._look_every_s = look_every_s
        self._seen = seen

    def wait(self, problem: str) -> None:
        """Return when the sources are others than those of the last failure, or after a minute.

        Args:
            problem: What is wrong with the settings.
        """
        first = problem.partition("\n")[0]
        self._readiness.ready()
        ends_s = time.monotonic() + _READ_AGAIN_S
        while (sources := self._sources()) == self._seen and time.monotonic() < ends_s:
            self._readiness.alive(f"waits for its settings: {first}")
            self._refuse(first)
        self._seen = sources  # those of the next attempt, or older ones

    def _refuse(self, problem: str) -> None:
        """Refuse the clients that come until the next look."""
        if not self._listeners:
            time.sleep(self._look_every_s)
            return
        ready, _, _ = select.select(self._listeners, (), (), self._look_every_s)
        for listener in ready:
            listener.settimeout(0.0)
            with contextlib.suppress(OSError):
                client, _ = listener.accept()
                with client:
                    if client.family == socket.AF_UNIX:
                        client.settimeout(0.0)
                        client.send(refusal_line("settings", problem))
                    else:
                        _refuse_over_http(client)


def _refuse_over_http(client: socket.socket) -> None:
    """Answer a client of HTTP; it may be of another machine, so the response does not quote the file.

    Raises:
        OSError: the client has gone, or has sent nothing.
    """
    client.settimeout(_REQUEST_WITHIN_S)
    # A request that is left unread would have the kernel reset the connection, response and all.
    client.recv(_MOST_REQUEST_BYTES)
    client.sendall(_UNAVAILABLE)

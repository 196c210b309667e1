"""Command lines on a box whose real supervisor listens on a real control socket.

The supervisor runs in a thread of its own. Virtual time passes only while an operation runs, and stops in
the phase that a script names, so that no event depends on the speed of this machine.
"""

import asyncio
import io
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

from tests.fakes.cli_box import CliBox
from tests.fakes.control_server import FakeSupervisor, Story
from tests.fakes.profiles import FakeProfiles
from tests.pins.appliance_code import (
    VERSION,
    Applied,
    FakePorts,
    Output,
    Phase,
    Supervised,
    phase_of,
    run_cli,
    supervised,
)
from tests.pins.frozen_time import FrozenLoop, settle, utc
from tests.pins.normalisation import RAM_DISK, key_ids, normal_output

_STEP_S: Final = 0.25
_PATIENCE_S: Final = 50.0
_OF_PROGRAMS: Final = frozenset({"run"})
"""Verbs that hand their real standard streams to another process."""


class TerminalText(io.TextIOWrapper):
    """Text that a command takes for a terminal."""

    def isatty(self) -> bool:
        return True


class CliSession:
    """Box below `root`, its supervisor in a thread, and the commands that are run on it."""

    def __init__(self, root: Path, profiles: Mapping[str, Applied], *committed: str) -> None:
        self.files = CliBox(root)
        self.files.install(*profiles.values(), committed="\n".join(committed))
        (root / "rules").mkdir()
        self.files.program("systemctl", "case $1 in --version) echo systemd 252;; esac")
        self.more_environment = {
            "APPLIANCE_POLKIT_RULE": str(root / "rules" / "rules"),
            "APPLIANCE_RUN_SOCKET": str(root / "run.sock"),
        }
        self.has_terminal = False
        """Whether commands write to a terminal; `more_environment` has its width and locale."""
        self.stands_in: Phase | None = None
        """Phase in which virtual time stops; None: it does not."""
        self.goes_on_when_asked = False
        """Virtual time stops there only until a client has asked for the running operation."""
        self.fakes = FakePorts(profiles, *committed)
        self.fakes.serve(*committed)
        self.profiles = FakeProfiles(profiles)
        self._key_ids: list[str] = []
        self._loop = FrozenLoop()
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._box: Supervised | None = None
        self._thread = threading.Thread(target=self._live)
        self._agents = ExitStack()

    # --- the supervisor's thread ------------------------------------------------------------

    def begin(self) -> None:
        """Start the supervisor."""
        self._thread.start()
        assert self._ready.wait(_PATIENCE_S)

    def end(self) -> None:
        """Stop the supervisor; later commands find no control socket."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(_PATIENCE_S)
        self.files.socket.unlink(missing_ok=True)
        self._agents.close()

    def measure(self, stories: Mapping[str, Story]) -> None:
        """Answer as the health agent from now on; `stories`: events by verb."""
        self._agents.enter_context(FakeSupervisor(self.files.health_socket, stories))

    def within(self, awaited: Awaitable[None]) -> None:
        """Await a coroutine in the supervisor's thread."""

        async def do() -> None:
            await awaited

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(_PATIENCE_S)

    @property
    def box(self) -> Supervised:
        """Supervisor and fakes."""
        assert self._box is not None
        return self._box

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        state = self.files.root / "state"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.files.socket))
        listener.listen()
        listener.settimeout(0)
        with listener:
            async with supervised(self.fakes, self.profiles, state) as self._box:
                tasks = [
                    asyncio.create_task(self._box.server.serve(listener)),
                    asyncio.create_task(self._flow()),
                ]
                await settle()
                self._ready.set()
                await self._end.wait()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _flow(self) -> None:
        """Let virtual time pass while an operation runs."""
        units = self.fakes.units
        while True:
            if self._rests():
                await asyncio.to_thread(threading.Event().wait, 0.002)
                continue
            # An operation that was accepted a moment ago gets all its turns before time passes.
            await settle()
            if not self._rests():
                units.drive(units.systemd.now_s + _STEP_S)

    def _rests(self) -> bool:
        """Tell whether no operation runs, or it is where virtual time stops."""
        phase = phase_of(self.box.supervisor)
        asked = self.goes_on_when_asked and self.box.supervisor.was_asked
        return phase is None or (phase is self.stands_in and not asked)

    async def rest(self) -> None:
        """Wait until no operation runs, or it is where virtual time stops."""
        while not self._rests():
            await settle()
        await settle()

    def launch(self, **ended: int) -> None:
        """Listen as the launcher of the next command; `ended`: fields of its closing event."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.more_environment["APPLIANCE_RUN_SOCKET"])
        listener.listen()
        self.stands_in = Phase.RUN
        threading.Thread(target=self._launch, args=(listener, ended), daemon=True).start()

    def _launch(self, listener: socket.socket, ended: Mapping[str, int]) -> None:
        with listener:
            connection, _ = listener.accept()
            Path(self.more_environment["APPLIANCE_RUN_SOCKET"]).unlink()
        with connection, connection.makefile("rw") as lines:
            assert json.loads(lines.readline())["argv"]
            for event, answer in (({"event": "ready"}, {"go": True}), ({"event": "ended"}, None)):
                lines.write(json.dumps({**event, **({} if answer else ended)}) + "\n")
                lines.flush()
                assert answer is None or json.loads(lines.readline()) == answer
        self.stands_in = None

    # --- the command line -------------------------------------------------------------------

    def run(self, *words: str) -> Output:
        """Run a command and return its normalised output."""
        if words[0] in _OF_PROGRAMS:
            ended = self.files.run(*words, **self.more_environment)
            done = Output(status=ended.status, out=ended.out, err=ended.err)
        else:
            done = self._in_process(*words)
        if self._thread.is_alive():
            self.within(self.rest())
        self._key_ids += key_ids(done.out)
        return Output(status=done.status, out=self._normal(done.out), err=self._normal(done.err))

    def _in_process(self, *words: str) -> Output:
        kind = TerminalText if self.has_terminal else io.TextIOWrapper
        out, err = (kind(io.BytesIO(), encoding="utf-8") for _ in range(2))
        before, stdin, temporary = dict(os.environ), sys.stdin, tempfile.tempdir
        os.environ |= {**self.files.environment, **self.more_environment}
        sys.stdin, tempfile.tempdir = io.StringIO(), None
        try:
            with redirect_stdout(out), redirect_stderr(err):
                status = run_cli(*words)
        finally:
            sys.stdin, tempfile.tempdir = stdin, temporary
            os.environ.clear()
            os.environ.update(before)
        texts = []
        for stream in (out, err):
            stream.flush()
            assert isinstance(stream.buffer, io.BytesIO)
            texts.append(stream.buffer.getvalue().decode())
        return Output(status=status, out=texts[0], err=texts[1])

    def _normal(self, text: str) -> str:
        return normal_output(
            text, self.files.root, VERSION, self._key_ids, own_memory=not self._thread.is_alive()
        )


@contextmanager
def cli_session(
    make: Callable[[Path], Mapping[str, Applied]], *committed: str
) -> Iterator[CliSession]:
    """Start a supervisor on a new box; stop it at the end."""
    with utc(), tempfile.TemporaryDirectory(dir=RAM_DISK, prefix="pins-") as folder:
        root = Path(folder)
        made = CliSession(root, make(root), *committed)
        made.begin()
        try:
            yield made
        finally:
            made.end()

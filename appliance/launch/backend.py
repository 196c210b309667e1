"""Wrapper of every engine: ``ExecStart=`` of a backend's unit, which executes the engine.

In order, as the engine's user: apply patches and check that they took; take the leases; clear
the directory for temporary files; spell the options as the engine's build has them; fork the poller
that sends READY; exec the engine, which thus is the unit's main process and holds the leases. Exit statuses that no restart can mend (``RestartPreventExitStatus=``):

===  ==========================================================
78   a patch is not applied, or the engine cannot be executed
79   another process holds a lease
===  ==========================================================

75 is for a start that another one has overtaken between gate and lease: systemd tries again.
"""

from __future__ import annotations

import os
import time

from appliance.launch import leases
from appliance.launch.program import ERROR, EX_USAGE, WARNING, Options, UsageError, run_program, say
from appliance.model.json_reader import decode_json
from appliance.model.paths import LEASE_DIR
from appliance.model.proxies import without_proxy_to_itself

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

EX_ADMISSION_LOST = 75
EX_CONFIG = 78
EX_LEASE_HELD = 79

_FLAGS = (
    "name",
    "lease",
    "port",
    "socket",
    "health",
    "no-progress-s",
    "patch-command",
    "patch-expect",
    "temporary",
    "lease-dir",
    "ask-build",
    "build-record",
)
_NO_PROGRESS_S = 300.0
_ASKING_S = 20.0
"""Longest time to ask an engine about its build, in seconds."""
_MAX_PORT = 65535
KEPT = "torchinductor_"
"""Prefix of the temporary files that are kept (torch._inductor.runtime.cache_dir_utils): a cache of
PyTorch's compiler, which saves the next start minutes."""


class EngineStart:
    def __init__(self, options: Options) -> None:
        self._started_s = time.monotonic()
        self._name = options.text("name")
        self._leases = leases.parse(options.many("lease"), options.text("lease-dir", LEASE_DIR))
        self._port = options.whole("port")
        self._socket = options.optional("socket")
        if (self._port is None) == (self._socket is None):
            raise UsageError("exactly one of --port and --socket is needed")
        if self._port is not None and not 0 < self._port <= _MAX_PORT:
            raise UsageError(f"not a port: {self._port}")
        self._health = options.text("health", "/health")
        self._no_progress_s = options.seconds("no-progress-s", _NO_PROGRESS_S)
        self._temporary = options.optional("temporary")
        self._patch = _command(options.optional("patch-command"))
        self._expected = options.many("patch-expect")
        self._question = options.optional("ask-build")
        self._record = options.text("build-record", "")
        self._engine = options.rest
        if not self._engine:
            raise UsageError("no engine after --")

    def run(self) -> int:
        """Execute the engine; returns an exit status only when that fails."""
        if self._patch and (problem := self._patch_problem()):
            say(ERROR, f"{self._name}: {problem}")
            _tell_patch_failure(problem)
            return EX_CONFIG
        descriptors: list[int] = []
        for lease in self._leases:
            descriptor = lease.take()
            if descriptor is None:
                return self._held(lease)
            if lease.is_lost(descriptor, self._name):
                say(ERROR, f"{self._name}: a rival was admitted to {lease.name} meanwhile")
                return EX_ADMISSION_LOST
            descriptors.append(descriptor)
        if self._temporary:
            clear_temporary(self._temporary)
        if self._question:
            self._spell(self._question)
        self._fork_poller(descriptors)
        return self._exec(descriptors)

    def _patch_problem(self) -> str:
        from appliance.launch import patch  # noqa: PLC0415

        return patch.run(self._patch, self._expected, no_progress_s=self._no_progress_s)

    def _spell(self, question: str) -> None:
        """Put the options in the words that the engine's program has; it is asked if nobody has yet."""
        from appliance.launch.ask_build import ask, stored  # noqa: PLC0415
        from appliance.model.engine_build import lacks, spelled  # noqa: PLC0415

        timeout_s = min(_ASKING_S, self._no_progress_s / 2)
        program = self._engine[0]
        record = stored(self._record, program) or ask(question, program, timeout_s=timeout_s)
        for lack in lacks(self._engine, record.build):
            version = record.build.version or program
            say(WARNING, f"{self._name}: {version} has no {lack.option} {lack.value}".rstrip())
        self._engine = spelled(self._engine, record.build)

    def _held(self, lease: leases.LeaseLock) -> int:
        from appliance.launch.obstacles import lease_sentence  # noqa: PLC0415

        say(ERROR, f"{self._name}: {lease_sentence(lease)}")
        return EX_LEASE_HELD

    def _fork_poller(self, descriptors: Sequence[int]) -> None:
        """Fork the poller twice: as a child of the engine it would end as the engine's zombie."""
        main = os.pidfd_open(os.getpid())
        middle = os.fork()
        if middle:
            os.close(main)
            os.waitpid(middle, 0)
            return
        # From here on the child must not return into the caller.
        try:
            if os.fork() == 0:
                for descriptor in descriptors:
                    os.close(
                        descriptor
                    )  # otherwise the poller would keep the lease of an engine that has ended
                self._poll(main)
        finally:
            os._exit(0)

    def _poll(self, main: int) -> None:
        os.setsid()  # An engine that signals its process group must not reach the poller.
        from appliance.launch.readiness import (  # noqa: PLC0415
            EngineEndpoint,
            ReadinessPoller,
        )

        endpoint = EngineEndpoint(port=self._port, path=self._socket, health=self._health)
        try:
            ReadinessPoller(
                endpoint,
                main=main,
                started_s=self._started_s,
                no_progress_s=self._no_progress_s,
            ).run()
        except Exception as error:  # noqa: BLE001
            # This is the only sign of why READY is not sent.
            import traceback  # noqa: PLC0415

            say(ERROR, "".join(traceback.format_exception(error)))

    def _exec(self, descriptors: Sequence[int]) -> int:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)  # noqa: FBT003
        # The poller sends READY: an engine that speaks the protocol would send it too early.
        environment = without_proxy_to_itself(os.environ)
        environment.pop("NOTIFY_SOCKET", None)
        try:
            os.execvpe(self._engine[0], self._engine, environment)  # noqa: S606
        except OSError as error:
            say(ERROR, f"{self._name}: engine {self._engine[0]}: {error.strerror}")
            return EX_CONFIG


def _tell_patch_failure(problem: str) -> None:
    """Leave the problem as the unit's status text, also for those who watch units."""
    from appliance.wire.sd_notify import barrier, notify, patch_failure  # noqa: PLC0415

    notify(f"STATUS={patch_failure(problem)}")
    barrier()  # a message is lost whose sender has ended before it is read


def _command(text: str | None) -> tuple[str, ...]:
    """Parse a command written as a JSON list of words; empty for none."""
    if text is None:
        return ()

    try:
        words = decode_json(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise UsageError(f"--patch-command is not a JSON list of words: {text}")
    return tuple(words)


def clear_temporary(directory: str) -> None:
    """Make the directory for an engine's temporary files, or empty it after the last run.

    Engines that are killed leave sockets, locks and half-written files. Links are removed and never
    followed. Never raises: an engine starts with old files in it too.
    """
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        with os.scandir(directory) as entries:
            for entry in entries:
                if not entry.name.startswith(KEPT):
                    _remove(entry)
    except OSError as error:
        say(WARNING, f"temporary files stay: {error.filename}: {error.strerror}")


def _remove(entry: os.DirEntry[str]) -> None:
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.path)
        return
    import shutil  # noqa: PLC0415 - 10 ms, and directories are rare

    shutil.rmtree(entry.path)


def main(argv: Sequence[str]) -> int:
    """Run the wrapper; returns only when the engine cannot be executed."""
    try:
        return EngineStart(Options(argv, _FLAGS)).run()
    except UsageError as error:
        say(ERROR, f"backend: {error}")
        return EX_USAGE
    except OSError as error:
        # A lease file is missing: the gate, which makes it, did not run.
        say(ERROR, f"backend: {error.strerror}: {error.filename}")
        return EX_CONFIG


def run() -> NoReturn:
    """Run the wrapper for its start script."""
    run_program(main)


if __name__ == "__main__":
    run()

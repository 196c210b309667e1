"""Readings of this machine: clocks, facts for a preflight, memory, verdicts of the gate, logs.

Nothing here raises: facts that this unprivileged process may not see are reported as unknown.
"""

import asyncio
import contextlib
import logging
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from appliance.model.engine_build import EngineBuild
from appliance.model.memory import GpuMemory, GroupMemory, HostMemory
from appliance.model.names import unit_of
from appliance.model.observed import RunReport
from appliance.model.paths import APPLIED_DIR, BUILDS
from appliance.model.profile import Applied
from appliance.switch.memory.requirement import MARGIN_BYTES
from appliance.switch.preflight_facts import BoxFacts, ProfileFacts
from appliance.system.applied.manifest import is_edited
from appliance.system.build_records import current_build
from appliance.system.files.access import (
    ModelPresences,
    draft_presence,
    engine_presence,
    missing_adapters,
    read_access,
)
from appliance.system.gpus.reader import read_gpus
from appliance.system.kernel.tcp_listeners import port_holder
from appliance.system.kernel.usage import group_memory, read_host_memory
from appliance.system.launch_files import admissions_in, gate_refusals_in, read_run_report
from appliance.system.model_files.reading import read_adapter_ranks
from appliance.wire import run_report

_log = logging.getLogger(__name__)

_JOURNAL_TIMEOUT_S: Final = 5.0
_MAX_LOG_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 16
_MAX_LINE: Final = 1 << 14
"""Longest line in characters; the configuration that vLLM logs has about 5,000."""


class SystemClock:
    """Port `Clock`, on the system's clocks."""

    def unix_s(self) -> float:
        """Return the wall clock, seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Return a clock that never goes back, in seconds."""
        return time.monotonic()


class LinuxHost:
    """Port `Host`, on this machine.

    Args:
        gate_dir: Where the gate writes its verdicts.
        unit_dir: Where the generated units are.
        builds_dir: Where the records of engines' builds are.
        report: Of the program that runs an operator's command.
        margin_bytes: VRAM that the gate keeps free beyond a need; None: its own default.
    """

    def __init__(
        self,
        *,
        gate_dir: Path,
        unit_dir: Path,
        builds_dir: Path = Path(APPLIED_DIR, BUILDS),
        report: Path = Path(run_report.FILE),
        margin_bytes: int | None = None,
        journal_timeout_s: float = _JOURNAL_TIMEOUT_S,
    ) -> None:
        self._gate_dir = gate_dir
        self._unit_dir = unit_dir
        self._builds_dir = builds_dir
        self._run_report = report
        self._margin_bytes = MARGIN_BYTES if margin_bytes is None else margin_bytes
        self._journal_timeout_s = journal_timeout_s
        self._models = ModelPresences()

    async def facts(self, applied: Applied) -> ProfileFacts:
        """Return the facts for or against starting a profile."""
        facts, (model, problem) = await asyncio.gather(
            asyncio.to_thread(_facts, applied, self._unit_dir), self._models.of(applied)
        )
        return replace(facts, model=model, model_problem=problem)

    async def build(self, applied: Applied, *, certain: bool = False) -> EngineBuild | None:
        """Return the build of a profile's engine, from the last answer of its program; None: none since the program was replaced.

        Args:
            applied: The profile.
            certain: Only if the program is seen to be unchanged since.
        """
        path = f"{self._builds_dir}/{applied.name}.json"
        return await asyncio.to_thread(current_build, path, applied.binary, certain=certain)

    async def box(self, *, with_gpus: bool) -> BoxFacts:
        """Return the box's memory; the GPUs are read only when they matter."""
        ram = read_host_memory()  # of /proc: a thread would take four times as long
        gpus = await _gpus(with_holders=True) if with_gpus else GpuMemory()
        return BoxFacts(
            ram_total_bytes=ram.total_bytes,
            ram_available_bytes=ram.available_bytes,
            gpu_error=gpus.reason,
            gpu_state=gpus.state,
            devices={d.index: d for d in gpus.devices},
            margin_bytes=self._margin_bytes,
        )

    async def ram(self) -> HostMemory:
        """Return the main memory of the whole machine."""
        return read_host_memory()  # /proc is read directly: a thread would take four times as long.

    async def gpus(self) -> GpuMemory:
        """Return the GPUs and their processes; takes as long as the driver does, at most 30 s."""
        return await _gpus(with_holders=True)

    async def group(self, control_group: str) -> GroupMemory | None:
        """Return the main memory of the processes in a unit's control group; None: there are none."""
        memory = await asyncio.to_thread(group_memory, control_group)
        return memory if memory.pids else None

    async def installed_unix_s(self, name: str) -> float | None:
        """Return when the unit of profile `name` was last written; None: not known."""
        try:
            return (self._unit_dir / unit_of(name)).stat().st_mtime
        except OSError:
            return None

    async def gate_refusals(self) -> Mapping[str, str]:
        """Return why the gate last refused a start, by profile; admitted ones are absent."""
        return gate_refusals_in(self._gate_dir)

    async def admissions(self) -> Mapping[str, str]:
        """Return what the gate waited for before it last admitted a start, by profile."""
        return admissions_in(self._gate_dir)

    async def run_report(self) -> RunReport | None:
        """Return the report of the last operator's command; None: none, or it still runs."""
        return read_run_report(self._run_report)

    async def log_tail(self, name: str, lines: int, *, since_unix_s: float) -> Sequence[str]:
        """Return the last lines that the processes of profile `name` logged since then, oldest first.

        At most `_MAX_LOG_BYTES` of them, however long each is.
        """
        # Newest first: with --since alone systemd 252 counts the lines from the oldest.
        output = await self._journal(name, since_unix_s, "-r", "-n", str(lines))
        return tuple(reversed(output.decode(errors="replace").splitlines()[:lines]))

    async def log_head(self, name: str, *, since_unix_s: float) -> Sequence[str]:
        """Return the first lines that the processes of profile `name` logged since then.

        At most `_MAX_LOG_BYTES` of them, each cut.
        """
        output = await self._journal(name, since_unix_s)
        lines = output.decode(errors="replace").splitlines()
        if len(output) == _MAX_LOG_BYTES:
            lines = lines[:-1]  # cut anywhere
        return tuple(line[:_MAX_LINE] for line in lines)

    async def _journal(self, name: str, since_unix_s: float, *options: str) -> bytes:
        """Return what the processes of profile `name` logged, up to a limit; empty: it cannot be read."""
        # Rounded down: rounded up, the time could be after an engine's only line.
        match = (f"_SYSTEMD_UNIT={unit_of(name)}", f"--since=@{int(since_unix_s)}")
        argv = ("journalctl", *match, *options, "-o", "cat", "-q", "--no-pager")
        try:
            async with asyncio.timeout(self._journal_timeout_s):
                return await _output_of(argv, _MAX_LOG_BYTES)
        except TimeoutError:
            _log.warning("cannot read the log of %s: journalctl takes too long", name)
        except OSError as error:
            _log.warning("cannot read the log of %s: %s", name, error)
        return b""


async def _output_of(argv: Sequence[str], limit_bytes: int) -> bytes:
    """Return the first output of a command; kill it when it prints too much or takes too long."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None  # noqa: S101
    output = bytearray()
    try:
        while len(output) < limit_bytes and (more := await process.stdout.read(_READ_BYTES)):
            output += more
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # A pipe that is not read to its end is never closed.
        while await process.stdout.read(_READ_BYTES):
            pass
        await process.wait()
    return bytes(output[:limit_bytes])


async def _gpus(*, with_holders: bool = False) -> GpuMemory:
    """Return the GPUs; their faults are part of the reading."""
    return await asyncio.to_thread(read_gpus, with_holders=with_holders)


def _facts(applied: Applied, unit_dir: Path) -> ProfileFacts:
    return ProfileFacts(
        draft=draft_presence(applied),
        missing_adapters=missing_adapters(applied),
        adapter_ranks=read_adapter_ranks([adapter.path for adapter in applied.adapters]),
        engine=engine_presence(applied),
        port_holder=None if applied.endpoint.port is None else port_holder(applied.endpoint.port),
        edited=is_edited(applied),
        model_bytes=_file_bytes(applied.model_path),
        access=read_access(applied, unit_dir),
    )


def _file_bytes(path: str | None) -> int | None:
    try:
        status = None if path is None else Path(path).stat()
    except OSError:
        return None
    return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

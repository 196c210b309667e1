"""The program's code that pins are made with: the only imports from it in this package."""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from appliance import __version__
from appliance.cli.bench.bench_screen import show_bench
from appliance.cli.cells import width
from appliance.cli.grammar import VERBS as _VERBS
from appliance.cli.main import main
from appliance.cli.status_screens import show_list, show_status
from appliance.cli.terminal import Streams, Terminal
from appliance.cli.verbs.alerts import alert_screen
from appliance.cli.verbs.apply import apply_profiles
from appliance.install.apply import ApplyOptions
from appliance.model.gateway import EngineLoad, Key
from appliance.model.memory import DeviceMemory, GpuMemory, GpuState, GroupMemory, Holder, Quality
from appliance.model.names import unit_of
from appliance.model.observed import ActiveState, ObservedUnit
from appliance.model.operations import FOREVER, Finished, Goal, Kind, Operation, Outcome, Phase
from appliance.model.profile import Applied, Estimate, Need
from appliance.model.status import ProfileFileRow
from appliance.model.trap_names import TrapName
from appliance.model.words import Mark
from appliance.profiles.linting.lint import TRAPS
from appliance.settings.loader import load_settings
from appliance.settings.tables import Settings
from appliance.status.box_status import InstalledForm
from appliance.supervisor.client_requests import ClientRequests
from appliance.supervisor.control_verbs import ControlVerbs
from appliance.supervisor.ownership import OperationRequest, Running, Supervisor
from appliance.supervisor.stall_watch import StallWatch
from appliance.supervisor.status_report import BoxStatus
from appliance.switch.memory.peak import ObservedPeak
from appliance.system.credential_files import FileKeys
from appliance.wire.conversation import ResultEvent
from tests.fakes.bench_outcomes import compared_bench
from tests.fakes.operator_accounts import token_desk
from tests.fakes.profiles import FakeProfiles
from tests.fakes.supervisor_documents import as_status
from tests.fakes.supervisor_ports import FakeFileComparison, FakePorts
from tests.fakes.systemctl import FakeSystemctl

__all__ = [
    "FOREVER",
    "MACHINES_TRAPS",
    "SHARED_THREADS",
    "VERBS",
    "VERSION",
    "ActiveState",
    "Applied",
    "DeviceMemory",
    "EngineLoad",
    "Estimate",
    "FakePorts",
    "FakeSystemctl",
    "Finished",
    "Goal",
    "GpuMemory",
    "GpuState",
    "GroupMemory",
    "Holder",
    "InstalledForm",
    "Kind",
    "Mark",
    "Need",
    "ObservedPeak",
    "ObservedUnit",
    "Operation",
    "OperationRequest",
    "Outcome",
    "Output",
    "Phase",
    "ProfileFileRow",
    "Quality",
    "Supervised",
    "Supervisor",
    "Terminal",
    "add_key",
    "alerts_lines",
    "apply",
    "bench_screen",
    "list_screen",
    "phase_of",
    "run_cli",
    "screen",
    "supervised",
    "unit_of",
    "width",
]
MACHINES_TRAPS: Final = frozenset(trap.name for trap in TRAPS if trap.on_gpus) | {
    TrapName.MISSING_UNIT,
    TrapName.RAM_TOO_SMALL,
    TrapName.UNLOCKED_WEIGHTS,
}
"""Traps by the GPUs, the main memory and the units of the machine on which a test runs."""

VERSION: Final = __version__
VERBS: Final = frozenset(verb.name for verb in _VERBS)
SHARED_THREADS: Final = min(os.cpu_count() or 1, 8)
"""Threads of an embedded engine whose profile does not say: this machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Output of a command: exit status, stdout and stderr."""

    status: int
    out: str
    err: str


def apply(settings: Path, manager: FakeSystemctl, *words: str) -> Output:
    """Run the use case of ``appliance apply`` as root, with a systemd in memory."""
    out, err = io.StringIO(), io.StringIO()
    options = ApplyOptions(
        dry_run="--dry-run" in words,
        adopt="--adopt-changes" in words,
        discard="--discard" in words,
    )
    status = apply_profiles(
        load_settings(settings, {}),
        options,
        Streams(out=Terminal(out), err=Terminal(err)),
        as_json="--json" in words,
        manager=manager,
        euid=0,
    )
    return Output(status=status, out=out.getvalue(), err=err.getvalue())


def add_key(state: Path) -> None:
    """Let one client use the gateway."""
    FileKeys(state).add(Key(name="ana"), 0.0)


# --- a box with a supervisor --------------------------------------------------------------


class AskedSupervisor(Supervisor):
    """Supervisor that remembers a question for the running operation."""

    was_asked = False

    def current(self) -> Running | None:
        """Return the running operation."""
        self.was_asked = True
        return super().current()


def phase_of(supervisor: Supervisor) -> Phase | None:
    """Return the phase of the running operation without asking for it; None: none runs."""
    running = Supervisor.current(supervisor)
    return None if running is None else running.transaction.operation.phase


@dataclass(slots=True, kw_only=True)
class Supervised:
    """Supervisor on a box in virtual time, with the services of its process."""

    fakes: FakePorts
    profiles: FakeProfiles
    supervisor: AskedSupervisor
    stalls: StallWatch
    status: BoxStatus
    server: ControlVerbs
    files: FakeFileComparison
    gateway_damage: str | None = None

    async def document(self) -> dict[str, Any]:
        """Return the status document."""
        document: dict[str, Any] = msgspec.to_builtins(await self.status.document())
        return document


@asynccontextmanager
async def supervised(
    fakes: FakePorts, profiles: FakeProfiles, keys: Path = Path("/nonexistent")
) -> AsyncIterator[Supervised]:
    """Run a supervisor on `fakes`; time passes only in `FakeUnits.drive`.

    Args:
        fakes: The box.
        profiles: What is applied.
        keys: Directory for inference keys.
    """
    fakes.units.is_driven = True
    supervisor = fakes.supervisor_as(AskedSupervisor, profiles, settings=Settings())
    ledger = fakes.memory_sampler(supervisor.last_look)
    stalls = fakes.stall_watch(supervisor.last_look)
    files = FakeFileComparison()
    status = fakes.status(
        supervisor,
        ledger,
        gateway_damage=lambda: box.gateway_damage,
        stalls=stalls.stalls,
        files=files,
    )
    server = ControlVerbs(
        supervisor,
        status=status.document,
        keys=FileKeys(keys),
        tokens=token_desk(keys),
        requests=ClientRequests(fakes.gateway),
        now_unix_s=fakes.clock.unix_s,
        operations=status.operations,
    )
    box = Supervised(
        fakes=fakes,
        profiles=profiles,
        supervisor=supervisor,
        stalls=stalls,
        status=status,
        server=server,
        files=files,
    )
    tasks = [asyncio.create_task(supervisor.run()), asyncio.create_task(ledger.run())]
    try:
        yield box
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def screen(
    document: Mapping[str, Any],
    now_unix_s: float,
    terminal: Callable[[io.StringIO], Terminal] = Terminal,
) -> str:
    """Return what ``appliance status`` prints for a document, without colours; in a pipe unless told otherwise."""
    out = io.StringIO()
    show_status(as_status(document), terminal(out), now=now_unix_s)
    return out.getvalue()


def list_screen(document: Mapping[str, Any], terminal: Terminal) -> None:
    """Print what ``appliance list --all`` does for a document."""
    show_list(as_status(document).profiles, terminal)


def alerts_lines(answer: Mapping[str, object], terminal: Terminal, now_unix_s: float) -> None:
    """Print what ``appliance alerts`` does for an answer of the health agent."""
    for line in alert_screen("list", ResultEvent(details=answer), terminal, now=now_unix_s):
        terminal.line(line)


def bench_screen(terminal: Terminal, profiles: Mapping[str, Applied], *, invalid: str = "") -> None:
    """Print what ``appliance bench A B`` does in the end, for the first two of `profiles`."""
    compared = list(profiles.values())[:2]
    first, second = compared
    show_bench(compared_bench(first.name, second.name, invalid=invalid), compared, terminal)


def run_cli(*words: str) -> int:
    """Run the command ``appliance`` in this process, on `sys.stdout` and `sys.stderr`."""
    try:
        return main(words)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else -1

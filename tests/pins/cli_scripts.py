"""Scripts for the command line: commands, and what is done to the box between them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.pins.appliance_code import ActiveState, ObservedUnit, Phase
from tests.pins.cli_session import CliSession

Step = str | Callable[[CliSession], None]
"""A command without the program's name, or something done to the box.

Before a command ``~`` means: as text alone. ``<`` means: only the last line of each stream counts, because
how many came before depends on the machine.
"""


@dataclass(frozen=True, slots=True)
class Script:
    """Commands one after another on one box."""

    steps: tuple[Step, ...]
    committed: tuple[str, ...] = ("aeon",)


SCRIPTS: Final[dict[str, Script]] = {}
AS_ROOT: Final = {"apply", "edit", "token"}
"""Scripts whose commands tell others that they are not root."""
SCREENS: Final[dict[str, Script]] = {}
"""Scripts whose commands have a terminal: see `tests.pins.screens`."""


def _script(name: str, *steps: Step, committed: tuple[str, ...] = ("aeon",)) -> None:
    SCRIPTS[name] = Script(steps, committed)


def _cold(*names: str) -> Step:
    """Return a step after which these engines do not answer their first request."""
    return lambda session: session.fakes.backend.cold.update(names)


def _warm(session: CliSession) -> None:
    session.fakes.backend.cold.clear()


def _standing_in(phase: Phase | None, *, until_asked: bool = False) -> Step:
    """Operations come to this phase and stay there, until somebody asks what runs."""

    def stand(session: CliSession) -> None:
        async def change() -> None:
            session.stands_in, session.goes_on_when_asked = phase, until_asked
            session.box.supervisor.was_asked = False
            await session.rest()

        session.within(change())

    return stand


def _supervisor_ends(session: CliSession) -> None:
    session.end()
    session.files.systemd_says(
        aeon="ActiveState=active SubState=running MainPID=42",
        supervisor="ActiveState=inactive",
    )


def _no_systemd(session: CliSession) -> None:
    session.files.program("systemctl", "echo no bus >&2; exit 1")


def _gives(name: str, unit: ObservedUnit) -> Step:
    def give(session: CliSession) -> None:
        session.fakes.systemd.report(name, unit)

    return give


def _disk_full(session: CliSession) -> None:
    session.fakes.commitment.full = True


def _no_gateway(session: CliSession) -> None:
    session.fakes.gateway.away = True


def _refused(name: str) -> Step:
    def refuse(session: CliSession) -> None:
        session.fakes.processes.behaviour[name].refusal = "GPU 0 has 3.0 GiB free, needs 14.5 GiB"

    return refuse


def _nothing_applied(session: CliSession) -> None:
    session.profiles.applied = {}
    session.files.install()


def _file(path: str, text: str) -> Step:
    def write(session: CliSession) -> None:
        (session.files.root / path).write_text(text)

    return write


_COMMAND: Final = """\
description = "a test"
engine = "command"
port = {port}
gpus = []

[command]
argv = ["/usr/bin/true", "--port", "{{port}}"]
"""
_FAILED: Final = ObservedUnit(
    active=ActiveState.FAILED, sub="failed", result="exit-code", exit_status=3
)

# --- operations -----------------------------------------------------------------------------

_script(
    "switch",
    "switch genesis",
    "switch genesis",
    "switch aeon --no-wait",
    "switch genesis --drain 5s",
    "switch aeon --now",
    "switch genesis --dry-run",
    "switch mini",
    _no_gateway,
    "switch genesis",
)
_script(
    "switch that fails",
    "switch genisis",
    "switch",
    "switch genesis --drain never",
    "switch genesis --timeout soon",
    "switch genesis --nwo",
    _cold("genesis"),
    "switch genesis",
    "switch genesis --no-rollback",
    "start",
    _cold("aeon"),
    "switch genesis",
    _warm,
    _refused("genesis"),
    "switch genesis",
    _disk_full,
    "switch genesis --dry-run",
    "switch genesis",
    "mark genesis retired",
    "switch genesis",
)
_script(
    "switch while another runs",
    _standing_in(Phase.LOAD),
    "<switch genesis --timeout 1s",
    "switch genesis --no-wait",
    "switch aeon",
    "start mini",
    "hold",
    "run -- true",
    "~status",
    _standing_in(Phase.LOAD, until_asked=True),
    "wait",
    "wait",
)
_script(
    "start",
    "start mini",
    "start mini embedder",
    "start genesis",
    "start nobody",
    "start mini nobody",
    "stop",
    "start",
    "start --dry-run",
)
_script("start that fails", _cold("mini"), "start mini", _refused("mini"), "start mini")
_script(
    "stop",
    "stop mini",
    "stop nobody",
    "stop aeon --drain 1m",
    "stop",
    "start",
    "stop --now",
    lambda session: setattr(session.fakes.processes.behaviour["aeon"], "stops_badly", True),
    "start",
    "stop aeon",
    "switch genesis",
    "stop genesis",
)
_script(
    "restart",
    "restart",
    "restart aeon --now",
    "restart mini",
    "restart nobody",
    _cold("aeon"),
    "restart aeon",
)
_script(
    "hold",
    "hold",
    "hold",
    "start",
    "hold --for 2h --drain 0s",
    "~status",
    "switch genesis",
    "hold --for ever",
    _disk_full,
    "hold",
)
_script(
    "cancel",
    "cancel",
    _standing_in(Phase.LOAD, until_asked=True),
    "switch genesis --no-wait",
    "cancel",
    _cold("aeon"),
    _standing_in(Phase.LOAD, until_asked=True),
    "switch genesis --no-wait",
    "cancel",
)
_script(
    "mark",
    "mark genesis live",
    "mark mini retired",
    "mark aeon retired",
    "mark nobody live",
    "mark aeon lvie",
    "mark aeon",
    "~list",
    "~list --all",
)
_script(
    "wait",
    "wait",
    "wait --for serving",
    "~wait --for idle",
    "~wait aeon",
    "~wait mini --for idle",
    "wait nobody",
    "wait genesis --timeout 1ms",
    "wait aeon --for idle --timeout 1ms",
    "wait --for ever",
    _gives("mini", _FAILED),
    "wait mini",
    _supervisor_ends,
    "~wait",
    "~wait aeon --timeout 1ms",
)
_script("wait for nothing", "wait --for serving", committed=())


def _ending(**how: int) -> Step:
    """The next command is launched and ends like this."""
    return lambda session: session.launch(**how)


def _never_begun(session: CliSession) -> None:
    session.fakes.processes.command.problem = "gpu-0 is held by process 4121 (python3)"


_script(
    "run",
    _ending(exit=0),
    "run -- python3 train.py",
    _ending(exit=7),
    "run --gpus 0,1 --drain 5s python3",
    _ending(signal=15),
    "run -- python3",
    "stop",
    _ending(exit=0),
    "run -- python3",
    "start",
    _ending(exit=0),
    _cold("aeon"),
    "run -- python3",
    _warm,
    _never_begun,
    "run -- python3",
    "run",
    "run --gpus x -- true",
)

# --- what is there --------------------------------------------------------------------------

_script(
    "status",
    "status",
    "status aeon",
    "status genesis",
    "status nobody",
    "status --for",
    "stop",
    "~status",
    _gives("mini", _FAILED),
    "status mini",
    _nothing_applied,
    "status",
)
_script(
    "list",
    "~list",
    "~ls",
    "mark mini retired",
    "~list --all",
    "list --mark live",
    "list --mark retired",
    "list --mark no",
    _nothing_applied,
    "list",
)
_script(
    "show",
    _file("units/appliance-backend-aeon.service", "[Unit]\nDescription=aeon"),
    _file("aeon.toml", "# its profile\n"),
    "show aeon",
    "show mini",
    "show aeon --unit",
    "show aeon --config",
    "show mini --unit",
    "show nobody",
    "show",
    "show aeon --unit --config",
)
_script(
    "logs",
    lambda session: session.files.program("journalctl", 'echo journalctl "$@"'),
    "logs",
    "logs aeon",
    "logs aeon --since 10m -f",
    "logs -n 5",
    "logs nobody",
    "logs -n x",
)
_script(
    "version",
    "version",
    "version now",
    _supervisor_ends,
    "version",
)
_script(
    "token",
    "token ls",
    "token add phone",
    "token add tablet --for 90d",
    "token ls",
    "token rm phone",
    "token rm phone",
    "token ls",
    "token add",
    "token add x --user nobody",
    "token ls phone",
)
_script(
    "key",
    "key ls",
    "key add phone",
    "key add laptop --may-switch --profiles aeon,genesis",
    "key ls",
    "key rm phone",
    "key rm phone",
    "key ls",
    "key add",
    "key ls phone",
    "key rm laptop --may-switch",
    "key add x --profiles nobody",
    "key add x --profiles aeon,",
    "key change",
    _file("state/keys.json", "{"),
    "key ls",
)
_script(
    "bench",
    "bench",
    "bench mini",
    "bench genesis",
    "bench nobody",
    "bench aeon aeon",
    "bench aeon genesis --save-baseline",
    "bench aeon --swarm 0-4",
    "bench aeon --depth 32x",
    "bench aeon --runs 0",
)
_script(
    "completion",
    "completion csh",
)
_script(
    "grammar",
    "swich genesis",
    "status --jsn",
)

# --- what is measured -----------------------------------------------------------------------

_AT: Final = 1_005_969_600.0
"""Saturday, 17 November 2001, at 04:00 of UTC: another year, which is told."""
_LOSS: Final = {
    "id": 1,
    "unix_s": _AT + 600,
    "profile": "aeon",
    "kind": "regression",
    "series": "decode",
    "text": "slow: 27.1 tok/s (was 41.0)",
}
_BASELINE: Final = {
    "profile": "aeon",
    "series": [
        {
            "series": "decode",
            "phase": "regressed",
            "baseline": 41.0,
            "band": 1.2,
            "accepted_unix_s": _AT - 86_400,
            "present": 27.1,
            "change": -0.34,
            "prompts": [{"prompt": "web-route", "rate": 40.8}],
        },
        {"series": "prefill", "phase": "learning"},
    ],
}
_CLOSED: Final = {"event": "result", "exit": 0}
_DONE: Final = {**_CLOSED, "outcome": "done", "message": "the baseline of aeon is changed"}


def _measures(session: CliSession) -> None:
    rows = [[_AT + n * 3600, 4, low, low + 0.2, low + 0.4] for n, low in enumerate((40.8, 26.9))]
    session.measure(
        {
            "speeds": [{**_CLOSED, "profiles": {"aeon": {}}, "trouble": []}],
            "history": [
                {
                    **_CLOSED,
                    "rows": {"decode": rows, "prefill": []},
                    "baseline": _BASELINE,
                    "events": [_LOSS],
                }
            ],
            "baseline": [{**_CLOSED, **_BASELINE}],
            "accept": [_DONE],
            "reset": [_DONE],
            "probe": [
                {"event": "progress", "profile": "aeon", "prompt": "web-route", "state": "reading"},
                {
                    "event": "progress",
                    "profile": "aeon",
                    "prompt": "web-route",
                    "state": "ended",
                    "text": "valid",
                    "tok_s": 27.1,
                },
                {
                    "event": "probed",
                    "profile": "aeon",
                    "outcome": "valid",
                    "decode_tok_s": 27.1,
                    "prefill_tok_s": 1850.0,
                    "ttft_s": 0.41,
                    "change": -0.34,
                },
                _CLOSED,
            ],
            "events": [{"event": "measured", **_LOSS}, _CLOSED],
        }
    )


_script(
    "uncommit",
    "start mini",
    "~status",
    "uncommit mini",
    "uncommit aeon",
    "uncommit aeon --exclusive",
    "uncommit nobody",
    "uncommit",
)
_script(
    "verify",
    "verify",
    "verify genesis",
    "verify nobody",
    "verify --json",
    "stop aeon",
    "verify",
)
_script(
    "operations",
    "operations",
    "switch genesis",
    _cold("aeon"),
    "switch aeon",
    "~operations",
    "operations genesis",
    "operations -n 1",
    "operations nobody",
)
_script(
    "measurements",
    "history aeon",
    "baseline show aeon",
    "probe aeon",
    "events",
    "show aeon --baseline",
    _measures,
    "~history",
    "~history aeon --csv",
    "history aeon --csv --raw",
    "baseline show",
    "show aeon --baseline",
    "baseline accept aeon",
    "baseline accept aeon --yes",
    "baseline reset aeon --yes",
    "probe",
    "events aeon -n 1",
)

# --- who is told -----------------------------------------------------------------------------

_ALERT: Final = {
    "alert": "A17",
    "subject": "profile:aeon",
    "severity": "warning",
    "fact": "slow: 27.1 tok/s (was 41.0)",
    "details": ["4 probes agree"],
    "likely": "11 of 49 layers on the CPU",
    "command": "appliance status aeon",
    "sent_unix_s": _AT + 120,
}
_WINDOW: Final = {"name": "backup", "days": ["mon"], "begin": "02:00", "minutes": 90}
_DELIVERY: Final = {"enabled": True, "targets": 1, "heartbeat_set": True, "heartbeat_s": 14.0}


def _watches(session: CliSession) -> None:
    session.measure(
        {
            "alerts": [
                {
                    **_CLOSED,
                    "alerts": [_ALERT],
                    "silences": [],
                    "windows": [_WINDOW],
                    "delivery": _DELIVERY,
                }
            ],
            "window": [{**_CLOSED, "windows": [_WINDOW]}],
        }
    )


_script(
    "alerts",
    "alerts",
    "alerts ack A17",
    "window ls",
    "alerts ack",
    "window add backup",
    _watches,
    "alerts",
    "window ls",
)

# --- without the supervisor, and with damage ------------------------------------------------

_script(
    "supervisor away",
    _supervisor_ends,
    "status",
    "status aeon",
    "list",
    "show aeon",
    "switch genesis",
    "switch nobody",
    "start",
    "start aeon mini",
    "stop aeon",
    "restart aeon --now",
    "hold",
    "cancel",
    "mark aeon live",
    "key ls",
    "run -- true",
    _file("applied/manifest.json", "x"),
    "status",
    _file("applied/manifest.json.copy", "x"),
    "status",
    "switch genesis",
    _no_systemd,
    "status",
)
_script(
    "settings",
    "config path",
    "config validate",
    "config show",
    "config change",
    _file("appliance.toml", 'log_levle = "debug"\n[gateway]\nport = 80\n'),
    "config validate",
    "config show",
    "profile validate",
    "switch genesis",
    _file("appliance.toml", "control_socket =\n"),
    "config validate",
    "status",
    "switch genesis",
)
_script(
    "profile",
    "profile validate",
    _file("profiles/a.toml", _COMMAND.format(port=9000)),
    _file("profiles/b.toml", _COMMAND.format(port=9001)),
    "profile validate",
    "profile validate a",
    "profile lint",
    "profile lint a --json",
    "~profile render a",
    "profile render nobody",
    _file("profiles/b.toml", _COMMAND.format(port=9001).replace("gpus", "gpsu")),
    "profile validate",
    "profile validate b",
    "profile render b",
    "profile check",
)
_script(
    "apply",
    "apply --dry-run",
    _file("profiles/a.toml", _COMMAND.format(port=9000)),
    "apply --dry-run",
    "apply",
    "apply",
    _file("profiles/a.toml", _COMMAND.format(port=8010)),
    "apply",
    "apply --discard --adopt-changes",
    lambda session: (session.files.root / "profiles" / "a.toml").unlink(),
    lambda session: (session.files.root / "profiles").rmdir(),
    "apply",
)


def _editor(script: str) -> Step:
    def set_up(session: CliSession) -> None:
        session.files.program("an-editor", script)
        session.more_environment |= {"EDITOR": "an-editor", "TMPDIR": str(session.files.root)}

    return set_up


_script(
    "edit",
    _file("profiles/a.toml", _COMMAND.format(port=9000)),
    _editor("sed -i s/a.test/another/ $1"),
    "edit a",
    "edit a --yes",
    "edit nobody",
    _editor("true"),
    "edit a",
    _editor("exit 3"),
    "edit a",
    _editor("sed -i s/port/prot/ $1"),
    "edit a",
)

# --- what a terminal shows ------------------------------------------------------------------

SCREENS["switch"] = Script(
    (
        "switch genesis",
        "switch genesis",
        "switch aeon --dry-run",
        "switch genisis",
        "switch",
        "swich genesis",
        _cold("aeon"),
        "switch aeon",
        _refused("aeon"),
        "switch aeon --no-rollback",
        "start",
        "operations",
    ),
    ("aeon",),
)
SCREENS["stop and hold"] = Script(
    (
        "stop",
        "start",
        "hold --for 2h",
        "start nobody",
        "wait genesis --timeout 1ms",
        "restart aeon",
    ),
    ("aeon",),
)
SCREENS["lists"] = Script(
    (
        "list --all",
        "show aeon",
        "key ls",
        "key add phone",
        "key add a-laptop-with-a-long-name --may-switch --profiles aeon,genesis,mini",
        "key ls",
        "key rm nobody",
    ),
    ("aeon",),
)
SCREENS["measurements"] = Script(
    (
        "history",
        _measures,
        "history",
        "history aeon --since 36h",
        "baseline show",
        "show aeon --baseline",
        "baseline accept aeon",
        "probe",
        "events",
    ),
    ("aeon",),
)
SCREENS["usage errors"] = Script(
    (
        "swich genesis",
        "nosuchverb",
        "switch genesis --nwo",
        "status --jsn",
        "key add",
        "key ad phone",
        "mark aeon",
        "mark aeon lvie",
        "bench",
        "bench aeon --swarm 0-4",
        "bench genesys aeon",
        "bench genesis",
        "show",
        "show genisis",
        "stop genisis",
        "wait genisis",
        "restart genisis",
        "mark genisis live",
        "switch genesis --drain never",
        "hold --for ever",
        "wait --for ever",
        "wait --timeout soon",
        "history --since yesterday",
        "operations -n many",
        "uncommit",
        "uncommit genisis",
        "alerts ack",
        "alerts ack A99",
        "config chnage",
        "baseline",
        "cancel",
    ),
    ("aeon",),
)
SCREENS["refusals"] = Script(
    (
        "mark mini retired",
        "switch mini",
        "uncommit aeon",
        _standing_in(Phase.LOAD),
        "switch genesis --no-wait",
        "switch aeon",
        "hold",
        "uncommit aeon",
        "operations",
        _standing_in(Phase.LOAD, until_asked=True),
        "cancel",
        _standing_in(None),
        _disk_full,
        "switch genesis",
        _supervisor_ends,
        "list",
        "switch genesis",
        "stop",
        "operations",
        "wait",
    ),
    ("aeon",),
)

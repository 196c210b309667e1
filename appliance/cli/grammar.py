"""Grammar of the command line: every verb, its arguments, and the module that runs it.

Nothing here imports a verb, nor anything that costs milliseconds, as argparse does: a switch is
measured with the start of its command. `appliance.cli.arguments` reads command lines in their usual
form by this grammar, `appliance.cli.argument_parser` all of them. `docs/reference/cli.md` is
generated from it.
"""

from __future__ import annotations

from appliance.model.errors import ApplianceError
from appliance.model.record import Record
from appliance.model.words import Mark, Series
from appliance.wire.control import DAYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, Protocol

    class ArgumentGroup(Protocol):
        """Receiver of arguments that exclude each other."""

        def add_argument(self, *flags: str, **options: Any) -> Any:
            """Add an argument with argparse's options; return it."""

    class VerbParser(ArgumentGroup, Protocol):
        """Receiver of a verb's arguments: argparse's parser, or the reader of usual command lines."""

        def add_mutually_exclusive_group(self) -> ArgumentGroup:
            """Add a group of arguments of which at most one is given."""

        def complete_names(self, action: Any) -> None:
            """Let the shell complete this argument with names of profiles."""

        def complete_examples(self, action: Any) -> None:
            """Let the shell complete this argument with names of examples."""


PROGRAM: Final = "appliance"
SOCKET_HELP: Final = (
    "the supervisor's control socket (default: $APPLIANCE_CONTROL_SOCKET, else the settings)"
)
_REMAINDER: Final = "..."
"""Value of `argparse.REMAINDER`."""
_MOST_RUNS: Final = 100
_MOST_CONCURRENCY: Final = 32
_FEWEST_TOKENS: Final = 2
_LEAST_DEPTH: Final = 256
_MOST_TOKENS: Final = 1 << 20
_LEAST_CONTEXT: Final = 16
_MOST_CONTEXT: Final = (1 << 24) - 1
_MOST_DIGITS: Final = 8
_MODULES: Final = "appliance.cli.verbs"
SEVERITIES: Final = ("critical", "warning", "info")
"""Values of `appliance.model.alerts.Severity`, which takes time to import."""


class ArgumentValueError(ApplianceError):
    """Text of an argument that makes no value of its type."""


class VerbGrammar(Record):
    name: str
    runs: str
    """Function that runs the verb, as ``module:function`` below `verbs`."""
    help: str
    fill: Callable[[VerbParser], None]
    """Function that adds the verb's arguments."""
    aliases: tuple[str, ...] = ()

    def defaults(self) -> dict[str, object]:
        """Return values, beside those of arguments, that hold where the command line sets none."""
        return {"runs": f"{_MODULES}.{self.runs}", "name": None, "names": []}

    def add_arguments(self, parser: VerbParser, *, no_socket: object) -> None:
        """Add the arguments that every verb has, and the verb's own.

        Args:
            parser: Receives them.
            no_socket: Value of --socket where it is not given after the verb.
        """
        parser.add_argument("--json", action="store_true", help="machine-readable output")
        parser.add_argument("--socket", metavar="PATH", default=no_socket, help=SOCKET_HELP)
        self.fill(parser)


def _status(parser: VerbParser) -> None:
    _names(parser, "only these profiles")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--watch", action="store_true", help="show each change until q or Ctrl-C")
    form.add_argument(
        "--markdown", action="store_true", help="a document with its time, for people and agents"
    )


def _list(parser: VerbParser) -> None:
    parser.add_argument("--all", action="store_true", help="list retired profiles too")
    parser.add_argument("--mark", choices=tuple(Mark), help="only profiles with this mark")


def _show(parser: VerbParser) -> None:
    _name(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--unit", action="store_true", help="print the profile's systemd unit as installed"
    )
    what.add_argument("--config", action="store_true", help="print the profile's file as it is now")
    what.add_argument(
        "--baseline", action="store_true", help="print the speeds that its probes are compared with"
    )


def _logs(parser: VerbParser) -> None:
    _names(parser, "profiles (default: supervisor and all backends)")
    parser.add_argument("-f", "--follow", action="store_true", help="keep showing new lines")
    parser.add_argument("-n", "--lines", metavar="N", type=_count, help="the last N lines (100)")
    parser.add_argument(
        "--since", metavar="TIME", help="an age such as 10m, or a time for journalctl"
    )


def _wait(parser: VerbParser) -> None:
    _names(parser, "profiles, all of which are waited for")
    parser.add_argument(
        "--for",
        dest="state",
        choices=["serving", "idle"],
        metavar="STATE",
        help="serving: each NAME (default: all committed ones) serves; "
        "idle: each NAME is stopped (default: no operation runs)",
    )
    _timeout(parser)


def _switch(parser: VerbParser) -> None:
    _names(parser, "profiles to serve together; -: those that were switched from last", some=True)
    parser.add_argument("--dry-run", action="store_true", help="only print what would happen")
    parser.add_argument(
        "--no-wait", action="store_true", help="return once the operation is accepted"
    )
    parser.add_argument(
        "--no-rollback",
        action="store_true",
        help="on failure restore nothing; leave the profile stopped",
    )
    _timeout(parser)
    _drain(parser)


def _start(parser: VerbParser) -> None:
    _names(parser, "profiles (default: the committed ones)")
    _timeout(parser)


def _stop(parser: VerbParser) -> None:
    _names(parser, "profiles (default: all that run)")
    _timeout(parser)
    _drain(parser)


def _restart(parser: VerbParser) -> None:
    _names(parser, "profiles (default: all that serve)")
    _timeout(parser)
    _drain(parser)


def _hold(parser: VerbParser) -> None:
    parser.add_argument(
        "--for",
        dest="hold_s",
        metavar="TIME",
        type=_duration,
        help="end the hold after this time (default: until a switch or start, also over reboots)",
    )
    _timeout(parser)
    _drain(parser)


def _run(parser: VerbParser) -> None:
    parser.add_argument(
        "--gpus",
        metavar="GPUS",
        type=_gpus,
        default="all",
        help="GPUs to claim: all, indexes such as 0,1, or none for the CPU alone (all)",
    )
    _drain(parser)
    parser.add_argument(
        "command",
        metavar="-- COMMAND",
        nargs=_REMAINDER,
        help="the command with its arguments",
    )


def _mark(parser: VerbParser) -> None:
    _names(parser, "profiles, or [[watch]] entries of the settings", some=True)
    parser.add_argument(
        "mark", metavar="MARK", choices=tuple(Mark), help="live, standby or retired"
    )


def _verify(parser: VerbParser) -> None:
    _names(parser, "profiles (default: all that serve)")


def _uncommit(parser: VerbParser) -> None:
    _name(parser, help_text="a committed profile, also one whose file is gone")
    parser.add_argument(
        "--exclusive",
        action="store_true",
        help="also if the profile owns devices alone, which after a boot no model would",
    )


def _key(parser: VerbParser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=["add", "ls", "rm"], help="add, ls or rm"
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="name of the key; for rm also its id"
    )
    parser.add_argument(
        "--may-switch", action="store_true", help="add: requests with the key may switch models"
    )
    profiles = parser.add_argument(
        "--profiles",
        metavar="A,B",
        type=_names_in,
        help="add: profiles that the key may use (default: any)",
    )
    parser.complete_names(profiles)


def _token(parser: VerbParser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=["add", "ls", "rm"], help="add, ls or rm"
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="name of the token; for rm also its id"
    )
    parser.add_argument(
        "--user", metavar="USER", help="add: operator for whom it stands (root; default: you)"
    )
    parser.add_argument(
        "--for",
        dest="valid_s",
        metavar="TIME",
        type=_duration,
        help="add: time after which it is refused, such as 90d (default: never)",
    )


def _names_in(text: str) -> list[str]:
    """Return the names of a list with commas.

    Raises:
        ArgumentValueError: One is empty, as all are when a shell variable has no value.
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ArgumentValueError(f'"{text}" has an empty name; write A or A,B')
    return names


def _history(parser: VerbParser) -> None:
    _name(parser, optional=True, help_text="a profile (default: the one that was measured last)")
    parser.add_argument(
        "--since",
        dest="since_s",
        metavar="AGE",
        type=_duration,
        help="how far back: 12h, 30d (7d); up to 2d by the hour, up to 62d by the day",
    )
    parser.add_argument(
        "--series", choices=tuple(Series), help="only decode or only prefill (default: both)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--csv", action="store_true", help="a row for each probe; for each hour before 90 days ago"
    )
    form.add_argument(
        "--raw", action="store_true", help="the raw times of each probe as CSV, or with --json"
    )
    form.add_argument(
        "--plot", metavar="FILE", help="draw decode, or the --series, as SVG into FILE"
    )


def _baseline(parser: VerbParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=["show", "accept", "reset"],
        help="show; accept: the present speed is the right one; reset: find another",
    )
    _name(
        parser,
        optional=True,
        help_text="a profile (default: the one measured last; to change it, the only one)",
    )
    parser.add_argument("--yes", "-y", action="store_true", help="change it without asking")


def _probe(parser: VerbParser) -> None:
    _names(parser, "profiles (default: all that serve)")


def _events(parser: VerbParser) -> None:
    _name(parser, optional=True, help_text="only this profile")
    parser.add_argument("-f", "--follow", action="store_true", help="keep showing new events")
    parser.add_argument("-n", "--lines", metavar="N", type=_count, help="the last N events (20)")


def _operations(parser: VerbParser) -> None:
    _name(parser, optional=True, help_text="only those of this profile")
    parser.add_argument("-n", "--lines", metavar="N", type=_count, help="the last N (20)")


def _alerts(parser: VerbParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        choices=["list", "show", "ack", "silence", "unsilence", "test", "outbox"],
        help="list (default); show: its history; ack: no more reminders; silence, unsilence; "
        "test: send one; outbox: what was sent",
    )
    _name(
        parser,
        optional=True,
        help_text="an alert such as A17; to silence also a profile, a watch, a GPU or box; "
        "to test a target (default: all)",
    )
    parser.add_argument(
        "--for",
        dest="silence_s",
        metavar="TIME",
        type=_duration,
        help="silence: for this time, at most 7d (2h)",
    )
    parser.add_argument("--reason", metavar="TEXT", help="silence: why, for those who look")
    parser.add_argument("-n", "--lines", metavar="N", type=_count, help="outbox: the last N (20)")


def _target(parser: VerbParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=["add", "ls", "rm", "test", "qr", "heartbeat"],
        help="add, ls, rm; test: send a message; qr: show the code that subscribes a phone to an ntfy"
        " topic; heartbeat: set the outside watch that is pinged, or none",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the target")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="add, heartbeat: the address, or - for a line of standard input (default: ask for it, so"
        " that it is not in the list of processes)",
    )
    parser.add_argument(
        "--min-severity",
        choices=SEVERITIES,
        help="add: the least severe alerts of which it is told (info)",
    )
    parser.add_argument("--click", metavar="URL", help="add: address that a tap on a message opens")
    parser.add_argument(
        "--box-silent",
        choices=["yes", "no"],
        help="add: whether it keeps the message that the box is silent (yes; at ntfy.sh no)",
    )


def _window(parser: VerbParser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=["add", "ls", "rm"], help="add, ls or rm"
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the window")
    parser.add_argument(
        "--days",
        metavar="DAY,DAY",
        type=_days_in,
        help="add: days on which it begins, mon to sun (default: every day)",
    )
    parser.add_argument(
        "--from", dest="begin", metavar="HH:MM", help="add: local time at which it begins"
    )
    parser.add_argument(
        "--for", dest="length_s", metavar="TIME", type=_duration, help="add: length, such as 90m"
    )
    profiles = parser.add_argument(
        "--profiles",
        metavar="A,B",
        type=_names_in,
        help="add: profiles and watches of which nobody is told (default: everything)",
    )
    parser.complete_names(profiles)
    parser.add_argument("--reason", metavar="TEXT", help="add: why, for those who look")


def _days_in(text: str) -> list[str]:
    """Return the days of a list with commas. Raises `ArgumentValueError`."""
    days = text.lower().split(",")
    if not set(days) <= set(DAYS):
        raise ArgumentValueError(f'"{text}" are no days; write mon,tue')
    return days


def _apply(parser: VerbParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show the differences")
    drift = parser.add_mutually_exclusive_group()
    drift.add_argument(
        "--adopt-changes", action="store_true", help="keep hand edits of units as overrides"
    )
    drift.add_argument("--discard", action="store_true", help="replace hand-edited units")


def _edit(parser: VerbParser) -> None:
    _name(parser)
    parser.add_argument("--yes", "-y", action="store_true", help="apply without asking")


def _profile(parser: VerbParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=["new", "validate", "lint", "render", "import", "rm"],
        help="new: make a profile for a model; validate; lint: tell traps of settings, models and GPUs; render:"
        " show units; import: make profiles of what other programs have; rm: remove files of stopped profiles"
        " (root)",
    )
    targets = parser.add_argument(
        "targets",
        metavar="FILE",
        nargs="*",
        help="files, or names of profiles (default: all); new: the name of the profile; import:"
        " configurations of llama-swap, presets, compose files, scripts, units, or - for standard input; rm:"
        " names of profiles",
    )
    parser.complete_names(targets)
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="import: write the profiles into this directory (default: print them); new: into this one"
        " (default: the box's profiles)",
    )
    parser.add_argument(
        "--force", action="store_true", help="new, import: replace profiles that are there"
    )
    _profile_new(parser)


def _profile_new(parser: VerbParser) -> None:
    parser.complete_examples(
        parser.add_argument(
            "--from",
            dest="example",
            metavar="EXAMPLE",
            help="new: copy this example, or a profile's file (default: propose settings for this box)",
        )
    )
    parser.add_argument(
        "--model", metavar="PATH", help="new: the model's file or directory, or hf:owner/name"
    )
    parser.add_argument(
        "--ctx", metavar="N", type=_context, help="new: tokens that one request may use"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        help="new: set this key, such as llama-server.mmproj=PATH; may be repeated",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="new: print the profile, write nothing"
    )
    parser.add_argument("--list", action="store_true", help="new: list the examples")


def _bench(parser: VerbParser) -> None:
    _names(parser, "the profile to measure, or those to compare with the first")
    parser.add_argument(
        "--runs",
        dest="run_count",
        metavar="N",
        type=_runs,
        help="measured runs after the warm-up (1); of a comparison, there and back again (2)",
    )
    parser.add_argument(
        "--swarm",
        metavar="C-C",
        type=_concurrencies,
        help="also several requests at a time: each concurrency of a range such as 1-8",
    )
    parser.add_argument(
        "--depth",
        metavar="N,N",
        type=_depths,
        help="also decoding after long prompts: their tokens, such as 32k,65k,131k",
    )
    parser.add_argument(
        "--tokens",
        metavar="N",
        type=_answer_tokens,
        help="exact length of each answer (default: until the model ends, at most 4096, swarm 8192)",
    )
    parser.add_argument(
        "--exclusive",
        action="store_true",
        help="let real requests wait, instead of ending the bench when one comes",
    )
    parser.add_argument(
        "--save-baseline",
        action="store_true",
        help="accept the present speed as the profile's baseline afterwards",
    )
    parser.add_argument("--csv", action="store_true", help="print the raw row of each request")
    parser.add_argument("--plot", metavar="FILE", help="draw the figures as SVG into FILE")


def _config(parser: VerbParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=["show", "validate", "path"],
        help="show, validate or path",
    )


def _completion(parser: VerbParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish"
    )


def _nothing(_: VerbParser) -> None:
    """Add no arguments."""


VERBS: Final = (
    VerbGrammar(
        "status", "status:run", "show which profiles serve or should, and why one does not", _status
    ),
    VerbGrammar("top", "top:run", "show the box on a live screen, and switch from it", _nothing),
    VerbGrammar("list", "status:run_list", "list the applied profiles", _list, ("ls",)),
    VerbGrammar("show", "show:run", "show everything about one profile", _show),
    VerbGrammar("logs", "logs:run", "show what a backend logged (journalctl)", _logs),
    VerbGrammar("history", "history:run", "show measured speeds over time", _history),
    VerbGrammar(
        "baseline",
        "speeds:run_baseline",
        "show or change the speeds that probes are compared with",
        _baseline,
    ),
    VerbGrammar("probe", "speeds:run_probe", "measure the speed of a profile now", _probe),
    VerbGrammar(
        "operations",
        "events:run_operations",
        "show what was done, by whom, and how it ended",
        _operations,
    ),
    VerbGrammar(
        "events", "events:run_events", "show alerts, losses of speed and other events", _events
    ),
    VerbGrammar(
        "alerts",
        "alerts:run_alerts",
        "show what is wrong and who is told of it, or silence it",
        _alerts,
    ),
    VerbGrammar("target", "target:run", "name who is told of alerts (root)", _target),
    VerbGrammar(
        "window", "alerts:run_window", "plan recurring times in which nobody is told", _window
    ),
    VerbGrammar("wait", "wait:run", "wait for the running operation, or for a state", _wait),
    VerbGrammar(
        "switch",
        "operate:run_switch",
        "serve profiles in place of those that conflict with them",
        _switch,
    ),
    VerbGrammar(
        "start", "operate:run_start", "start profiles beside those that run; evicts none", _start
    ),
    VerbGrammar(
        "stop", "operate:run_stop", "stop profiles until the next start, switch or boot", _stop
    ),
    VerbGrammar("restart", "operate:run_restart", "stop and start profiles", _restart),
    VerbGrammar(
        "hold", "operate:run_hold", "stop every model and start none, for other work", _hold
    ),
    VerbGrammar("run", "run:run", "run a command in place of models, which then come back", _run),
    VerbGrammar(
        "cancel", "operate:run_cancel", "cancel and roll back the running operation", _nothing
    ),
    VerbGrammar("mark", "operate:run_mark", "set who is told about a profile or a watch", _mark),
    VerbGrammar(
        "uncommit", "operate:run_uncommit", "have a boot not start a profile any more", _uncommit
    ),
    VerbGrammar(
        "verify", "verify:run", "compare what engines report with what profiles declare", _verify
    ),
    VerbGrammar("key", "credentials:run_key", "make, list or remove keys for other machines", _key),
    VerbGrammar(
        "token",
        "credentials:run_token",
        "make, list or remove tokens to act as an operator",
        _token,
    ),
    VerbGrammar("apply", "apply:run", "install units for the profiles (root)", _apply),
    VerbGrammar(
        "edit",
        "apply:run_edit",
        "edit a profile, check it, show the change, apply it (root)",
        _edit,
    ),
    VerbGrammar(
        "profile",
        "profile:run",
        "make profiles, check them, show their units, import or remove them",
        _profile,
    ),
    VerbGrammar("bench", "bench:run", "measure the speed of a profile, or compare several", _bench),
    VerbGrammar("config", "config:run", "show or check the settings", _config),
    VerbGrammar(
        "version", "version:run", "print the versions of the CLI and the supervisor", _nothing
    ),
    VerbGrammar(
        "completion", "completion:run", "print a completion script for a shell", _completion
    ),
)


def _name(parser: VerbParser, *, optional: bool = False, help_text: str = "a profile") -> None:
    nargs = "?" if optional else None
    parser.complete_names(parser.add_argument("name", metavar="NAME", nargs=nargs, help=help_text))


def _names(parser: VerbParser, help_text: str, *, some: bool = False) -> None:
    nargs = "+" if some else "*"
    parser.complete_names(parser.add_argument("names", metavar="NAME", nargs=nargs, help=help_text))


def _timeout(parser: VerbParser) -> None:
    parser.add_argument(
        "--timeout",
        dest="timeout_s",
        metavar="TIME",
        type=_duration,
        help="stop waiting after this time (exit 124); the operation continues",
    )


def _drain(parser: VerbParser) -> None:
    drain = parser.add_mutually_exclusive_group()
    drain.add_argument(
        "--drain",
        dest="drain_s",
        metavar="TIME",
        type=_duration,
        help="let running requests finish for this time (default: the profile's deadline)",
    )
    drain.add_argument(
        "--now", dest="drain_s", action="store_const", const=0.0, help="do not wait for requests"
    )


def _duration(text: str) -> float:
    # The patterns of that module take a millisecond to compile.
    from appliance.model.quantities import duration_s  # noqa: PLC0415

    seconds = duration_s(text)
    if seconds is None:
        raise ArgumentValueError(f'"{text}" is no duration; write 30s, 10m or 1h30m')
    return seconds


def _gpus(text: str) -> str | list[int]:
    if text in {"all", "none"}:
        return "all" if text == "all" else []
    words = text.split(",")
    if all(word.isascii() and word.isdigit() for word in words):
        return sorted({int(word) for word in words})
    raise ArgumentValueError(f'"{text}" names no GPUs; write all, none or 0,1')


def _count(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise ArgumentValueError(f'"{text}" is no number of lines')


def _runs(text: str) -> int:
    return _between(text, 1, _MOST_RUNS, "a number of runs")


def _answer_tokens(text: str) -> int:
    return _between(text, _FEWEST_TOKENS, _MOST_TOKENS, "a number of tokens")


def _context(text: str) -> int:
    return _between(text, _LEAST_CONTEXT, _MOST_CONTEXT, "a number of tokens")


def _concurrencies(text: str) -> tuple[int, int]:
    """Return the lowest and the highest concurrency of ``8`` or ``1-8``."""
    lowest, _, highest = text.partition("-")
    what = "a range such as 1-8"
    first = _between(lowest, 1, _MOST_CONCURRENCY, what)
    last = _between(highest, first, _MOST_CONCURRENCY, what) if highest else first
    return first, last


def _depths(text: str) -> list[int]:
    """Return the tokens of ``32k,65k``, where k stands for a thousand."""
    found = []
    for word in text.split(","):
        number = word.lower().removesuffix("k")
        least, factor = (1, 1000) if number != word else (_LEAST_DEPTH, 1)
        most = _MOST_TOKENS // factor
        found.append(factor * _between(number, least, most, "a list such as 32k,65k"))
    return found


def _between(text: str, least: int, most: int, what: str) -> int:
    """Return the number that `text` is.

    Raises:
        ArgumentValueError: it is none from `least` to `most`.
    """
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else -1
    if least <= number <= most:
        return number
    raise ArgumentValueError(f'"{text}" is not {what}, from {least} to {most}')

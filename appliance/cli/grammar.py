"""The whole grammar: every verb, its arguments, and the module that runs it.

Nothing here imports a verb, nor anything that costs milliseconds: a switch is measured with the
start of its command. `docs/reference/cli.md` is generated from this tree.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence

from appliance import __version__
from appliance.planning.wording import closest
from appliance.protocol.control import MARKS, Exit
from appliance.protocol.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Never

PROGRAM: Final = "appliance"
_MODULES: Final = "appliance.cli.verbs"
_COLUMNS: Final = 80
"""Width of help where the terminal's is unknown."""
_SOCKET_HELP: Final = (
    "the supervisor's control socket (default: $APPLIANCE_CONTROL_SOCKET, else the settings)"
)

Completer = Callable[..., Iterable[str]]
"""Function that argcomplete calls with keyword arguments while the shell asks."""


class _Formatter(argparse.HelpFormatter):
    """Formatter that finds the width by itself: argparse imports shutil for it."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        return _COLUMNS


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors say what to type next."""

    names: Completer | None = None
    """Completes the names of profiles."""

    def error(self, message: str) -> Never:
        """End with the usage status and a hint."""
        self.exit(Exit.USAGE, f"{message}: {self.prog} --help\n")

    def complete_names(self, action: argparse.Action) -> None:
        """Let the shell complete this argument with names of profiles."""
        if self.names is not None:
            action.completer = self.names  # type: ignore[attr-defined]  # argcomplete's protocol

    def _check_value(self, action: argparse.Action, value: object) -> None:
        # The base class lists every choice; one likely word helps more.
        choices = [str(choice) for choice in action.choices or ()]
        if action.choices is None or value in choices:
            return
        meant = closest(str(value), choices)
        what = action.metavar if isinstance(action.metavar, str) else action.dest
        hint = f'did you mean "{meant}"?' if meant else f"one of {', '.join(choices)}"
        raise argparse.ArgumentError(None, f'"{value}" is no {what.lower()}; {hint}')


class VerbGrammar(Record):
    """One verb of the command line."""

    name: str
    runs: str
    """``module:function`` below `verbs`."""
    help: str
    fill: Callable[[Parser], None]
    """Adds its arguments."""
    aliases: tuple[str, ...] = ()


def build_parser(argv: Sequence[str] = (), names: Completer | None = None) -> Parser:
    """Return the grammar.

    Args:
        argv: The arguments to parse. Where they begin with a verb, only that one's arguments are
            built: all of them take 10 ms.
        names: Completes profile names for a shell.
    """
    parser = Parser(
        prog=PROGRAM,
        description="One box, one owner of its GPUs: local language models as systemd units.",
        epilog="appliance VERB --help says more about one verb.",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {__version__}", help="print the version"
    )
    parser.add_argument("--socket", metavar="PATH", default=None, help=_SOCKET_HELP)
    verbs = parser.add_subparsers(
        # Named, so that argparse does not format a usage line to find out.
        prog=PROGRAM,
        dest="verb",
        metavar="VERB",
        required=True,
        title="verbs",
        parser_class=Parser,
    )
    wanted = [v for v in VERBS if argv and argv[0] in (v.name, *v.aliases)]
    for verb in wanted or VERBS:
        _add(verbs, verb, names)
    return parser


def _add(
    verbs: argparse._SubParsersAction[Parser], verb: VerbGrammar, names: Completer | None
) -> None:
    parser = verbs.add_parser(
        verb.name,
        aliases=list(verb.aliases),
        help=verb.help,
        description=f"{verb.help[0].upper()}{verb.help[1:]}.",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.names = names
    parser.set_defaults(runs=f"{_MODULES}.{verb.runs}", name=None, names=[])
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    # Suppressed, so that it does not hide the one given before the verb.
    parser.add_argument("--socket", metavar="PATH", default=argparse.SUPPRESS, help=_SOCKET_HELP)
    verb.fill(parser)


def _status(parser: Parser) -> None:
    _name(parser, optional=True, help_text="only this profile")
    parser.add_argument("--watch", action="store_true", help="again every 2 s until Ctrl-C")


def _list(parser: Parser) -> None:
    parser.add_argument("--all", action="store_true", help="retired ones too")
    parser.add_argument("--mark", choices=MARKS, help="only those so marked")


def _show(parser: Parser) -> None:
    _name(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--unit", action="store_true", help="its systemd unit as installed")
    what.add_argument("--config", action="store_true", help="its profile file as it is now")


def _logs(parser: Parser) -> None:
    _name(parser, optional=True, help_text="a profile (default: supervisor and all backends)")
    parser.add_argument("-f", "--follow", action="store_true", help="keep showing new lines")
    parser.add_argument("-n", "--lines", metavar="N", type=_count, help="the last N lines (100)")
    parser.add_argument("--since", metavar="TIME", help="an age as in 10m, or journalctl's own")


def _wait(parser: Parser) -> None:
    _name(parser, optional=True)
    parser.add_argument(
        "--for",
        dest="state",
        choices=["serving", "idle"],
        metavar="STATE",
        help="serving: NAME (default: all committed ones) serves; "
        "idle: NAME is stopped (default: no operation runs)",
    )
    _timeout(parser)


def _switch(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    parser.add_argument("--no-wait", action="store_true", help="return once it is accepted")
    parser.add_argument(
        "--no-rollback", action="store_true", help="on failure restore nothing; leave it stopped"
    )
    _timeout(parser)
    _drain(parser)


def _start(parser: Parser) -> None:
    _names(parser, "profiles (default: the committed ones)")
    _timeout(parser)


def _stop(parser: Parser) -> None:
    _names(parser, "profiles (default: all that run)")
    _timeout(parser)
    _drain(parser)


def _restart(parser: Parser) -> None:
    _names(parser, "profiles (default: all that serve)")
    _timeout(parser)
    _drain(parser)


def _hold(parser: Parser) -> None:
    parser.add_argument(
        "--for",
        dest="hold_s",
        metavar="TIME",
        type=_duration,
        help="end by itself after this long (default: until a switch or start, also over reboots)",
    )
    _timeout(parser)
    _drain(parser)


def _run(parser: Parser) -> None:
    parser.add_argument(
        "--gpus",
        metavar="GPUS",
        type=_gpus,
        default="all",
        help="what it claims: all, indexes such as 0,1, or none for the CPU alone (all)",
    )
    _drain(parser)
    parser.add_argument(
        "command",
        metavar="-- COMMAND",
        nargs=argparse.REMAINDER,
        help="the command with its arguments",
    )


def _mark(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("mark", metavar="MARK", choices=MARKS, help="live, standby or retired")


def _key(parser: Parser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=["add", "ls", "rm"], help="add, ls or rm"
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="whose key; for rm also its id")
    parser.add_argument(
        "--may-switch", action="store_true", help="add: requests with it may switch models"
    )
    profiles = parser.add_argument(
        "--profiles", metavar="A,B", type=_names_in, help="add: all that it may use (default: any)"
    )
    parser.complete_names(profiles)


def _names_in(text: str) -> list[str]:
    """Return the names of a list with commas.

    Raises:
        ArgumentTypeError: One is empty, as all are when a shell variable has no value.
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f'"{text}" leaves a name out; write A or A,B')
    return names


def _apply(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show the differences")
    drift = parser.add_mutually_exclusive_group()
    drift.add_argument(
        "--adopt-changes", action="store_true", help="keep hand edits of units as overrides"
    )
    drift.add_argument("--discard", action="store_true", help="replace hand-edited units")


def _edit(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("--yes", "-y", action="store_true", help="apply without asking")


def _profile(parser: Parser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=["validate", "render"], help="validate or render"
    )
    targets = parser.add_argument(
        "targets", metavar="FILE", nargs="*", help="files, or names of profiles (default: all)"
    )
    parser.complete_names(targets)


def _config(parser: Parser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=["show", "validate", "path"],
        help="show, validate or path",
    )


def _completion(parser: Parser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish"
    )


def _nothing(_: Parser) -> None:
    """Add no arguments."""


VERBS: Final = (
    VerbGrammar("status", "status:run", "show what serves, what should, and why not", _status),
    VerbGrammar("list", "listing:run", "list the applied profiles", _list, ("ls",)),
    VerbGrammar("show", "show:run", "show everything about one profile", _show),
    VerbGrammar("logs", "logs:run", "show what a backend logged (journalctl)", _logs),
    VerbGrammar("wait", "wait:run", "wait for the running operation, or for a state", _wait),
    VerbGrammar(
        "switch", "operate:run_switch", "serve NAME instead of what is in its way", _switch
    ),
    VerbGrammar(
        "start", "operate:run_start", "start profiles beside what runs; evicts none", _start
    ),
    VerbGrammar(
        "stop", "operate:run_stop", "stop profiles until the next start, switch or boot", _stop
    ),
    VerbGrammar("restart", "operate:run_restart", "stop and start profiles", _restart),
    VerbGrammar(
        "hold", "operate:run_hold", "stop everything and keep it so, for other work", _hold
    ),
    VerbGrammar("run", "run:run", "run a command in place of models, which then come back", _run),
    VerbGrammar(
        "cancel", "operate:run_cancel", "cancel the running operation; it rolls back", _nothing
    ),
    VerbGrammar("mark", "operate:run_mark", "say who is told about a profile", _mark),
    VerbGrammar("key", "key:run", "make, list or take away keys for other machines", _key),
    VerbGrammar("apply", "apply:run", "install units for the profiles (root)", _apply),
    VerbGrammar(
        "edit", "edit:run", "edit a profile, check it, show the change, apply it (root)", _edit
    ),
    VerbGrammar("profile", "profile:run", "check profile files, or show their units", _profile),
    VerbGrammar("config", "config:run", "show or check the settings", _config),
    VerbGrammar(
        "version", "version:run", "print the versions of the CLI and the supervisor", _nothing
    ),
    VerbGrammar(
        "completion", "completion:run", "print a completion script for a shell", _completion
    ),
)


def _name(parser: Parser, *, optional: bool = False, help_text: str = "a profile") -> None:
    nargs = "?" if optional else None
    parser.complete_names(parser.add_argument("name", metavar="NAME", nargs=nargs, help=help_text))


def _names(parser: Parser, help_text: str) -> None:
    parser.complete_names(parser.add_argument("names", metavar="NAME", nargs="*", help=help_text))


def _timeout(parser: Parser) -> None:
    parser.add_argument(
        "--timeout",
        dest="timeout_s",
        metavar="TIME",
        type=_duration,
        help="stop waiting after this long (exit 124); the operation continues",
    )


def _drain(parser: Parser) -> None:
    drain = parser.add_mutually_exclusive_group()
    drain.add_argument(
        "--drain",
        dest="drain_s",
        metavar="TIME",
        type=_duration,
        help="let running requests finish for this long (default: the profile's deadline)",
    )
    drain.add_argument(
        "--now", dest="drain_s", action="store_const", const=0.0, help="do not wait for requests"
    )


def _duration(text: str) -> float:
    # Its patterns take a millisecond to compile.
    from appliance.domain.quantities import duration_s  # noqa: PLC0415

    seconds = duration_s(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f'"{text}" is no duration; write 30s, 10m or 1h30m')
    return seconds


def _gpus(text: str) -> str | list[int]:
    if text in {"all", "none"}:
        return "all" if text == "all" else []
    words = text.split(",")
    if all(word.isascii() and word.isdigit() for word in words):
        return sorted({int(word) for word in words})
    raise argparse.ArgumentTypeError(f'"{text}" names no GPUs; write all, none or 0,1')


def _count(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f'"{text}" is no number of lines')

"""The whole grammar: every verb, its arguments, and the module that runs it.

Nothing here imports a verb. `docs/reference/cli.md` is generated from this tree.
"""

import argparse
from collections.abc import Callable, Iterable
from typing import Final, Never

from appliance import __version__
from appliance.domain.profile import Mark
from appliance.domain.protocol import Exit
from appliance.domain.quantities import duration_s
from appliance.planning.wording import closest

PROGRAM: Final = "appliance"
_VERBS: Final = "appliance.surfaces.cli.verbs"

Completer = Callable[..., Iterable[str]]
"""What argcomplete calls with keyword arguments while the shell asks."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors say what to type next."""

    def error(self, message: str) -> Never:
        """End with the usage status and a hint."""
        self.exit(Exit.USAGE, f"{message}: {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        # The base class lists every choice; one likely word helps more.
        choices = [str(choice) for choice in action.choices or ()]
        if action.choices is None or value in choices:
            return
        meant = closest(str(value), choices)
        what = action.metavar if isinstance(action.metavar, str) else action.dest
        hint = f'did you mean "{meant}"?' if meant else f"one of {', '.join(choices)}"
        raise argparse.ArgumentError(None, f'"{value}" is no {what.lower()}; {hint}')


def build_parser(names: Completer | None = None) -> Parser:
    """The grammar; `names` completes profile names for a shell."""
    parser = Parser(
        prog=PROGRAM,
        description="One box, one owner of its GPUs: local language models as systemd units.",
        epilog="appliance VERB --help says more about one verb.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {__version__}", help="print the version"
    )
    parser.add_argument("--socket", metavar="PATH", default=None, help=_SOCKET_HELP)
    verbs = _Verbs(
        parser.add_subparsers(
            dest="verb", metavar="VERB", required=True, title="verbs", parser_class=Parser
        ),
        names,
    )
    _add_readers(verbs)
    _add_operations(verbs)
    _add_root_verbs(verbs)
    _add_own_verbs(verbs)
    return parser


_SOCKET_HELP: Final = (
    "the supervisor's control socket (default: $APPLIANCE_CONTROL_SOCKET, else the settings)"
)


class _Verbs:
    """Adds verbs that share --json and --socket."""

    def __init__(
        self, actions: "argparse._SubParsersAction[Parser]", names: Completer | None
    ) -> None:
        self._actions = actions
        self._names = names

    def add(self, verb: str, runs: str, help_text: str, *aliases: str) -> Parser:
        """A verb that ``verbs.<module>:<function>`` runs."""
        parser = self._actions.add_parser(
            verb,
            aliases=list(aliases),
            help=help_text,
            description=f"{help_text[0].upper()}{help_text[1:]}.",
            allow_abbrev=False,
        )
        parser.set_defaults(runs=f"{_VERBS}.{runs}", name=None, names=[])
        parser.add_argument("--json", action="store_true", help="machine-readable output")
        # Suppressed, so that it does not hide the one given before the verb.
        parser.add_argument(
            "--socket", metavar="PATH", default=argparse.SUPPRESS, help=_SOCKET_HELP
        )
        return parser

    def name(self, parser: Parser, *, optional: bool = False, help_text: str = "a profile") -> None:
        """The argument NAME."""
        action = parser.add_argument(
            "name", metavar="NAME", nargs="?" if optional else None, help=help_text
        )
        self._complete(action)

    def names(self, parser: Parser, help_text: str) -> None:
        """Any number of NAMEs."""
        self._complete(parser.add_argument("names", metavar="NAME", nargs="*", help=help_text))

    def _complete(self, action: argparse.Action) -> None:
        if self._names is not None:
            action.completer = self._names  # type: ignore[attr-defined]  # argcomplete's protocol


def _add_readers(verbs: _Verbs) -> None:
    status = verbs.add("status", "status:run", "show what serves, what should, and why not")
    verbs.name(status, optional=True, help_text="only this profile")
    status.add_argument("--watch", action="store_true", help="again every 2 s until Ctrl-C")

    listing = verbs.add("list", "inventory:run_list", "list the applied profiles", "ls")
    listing.add_argument("--all", action="store_true", help="retired ones too")
    listing.add_argument("--mark", choices=[m.value for m in Mark], help="only those so marked")

    show = verbs.add("show", "inventory:run_show", "show everything about one profile")
    verbs.name(show)
    what = show.add_mutually_exclusive_group()
    what.add_argument("--unit", action="store_true", help="its systemd unit as installed")
    what.add_argument("--config", action="store_true", help="its profile file as it is now")

    logs = verbs.add("logs", "logs:run", "show what a backend logged (journalctl)")
    verbs.name(logs, optional=True, help_text="a profile (default: supervisor and all backends)")
    logs.add_argument("-f", "--follow", action="store_true", help="keep showing new lines")
    logs.add_argument("-n", "--lines", metavar="N", type=_count, help="the last N lines (100)")
    logs.add_argument("--since", metavar="TIME", help="an age as in 10m, or what journalctl takes")

    wait = verbs.add("wait", "wait:run", "wait for the running operation, or for a state")
    verbs.name(wait, optional=True)
    wait.add_argument(
        "--for",
        dest="state",
        choices=["serving", "idle"],
        metavar="STATE",
        help="serving: NAME (default: all committed ones) serves; "
        "idle: NAME is stopped (default: no operation runs)",
    )
    _add_timeout(wait)


def _add_operations(verbs: _Verbs) -> None:
    switch = verbs.add("switch", "operate:run_switch", "serve NAME instead of what is in its way")
    verbs.name(switch)
    switch.add_argument("--dry-run", action="store_true", help="only say what would happen")
    switch.add_argument("--no-wait", action="store_true", help="return once it is accepted")
    switch.add_argument(
        "--no-rollback", action="store_true", help="on failure restore nothing; leave it stopped"
    )
    _add_timeout(switch)
    _add_drain(switch)

    start = verbs.add("start", "operate:run_start", "start profiles beside what runs; evicts none")
    verbs.names(start, "profiles (default: the committed ones)")
    _add_timeout(start)
    for verb, what, default in (
        ("stop", "stop profiles until the next start, switch or boot", "all that run"),
        ("restart", "stop and start profiles", "all that serve"),
    ):
        parser = verbs.add(verb, f"operate:run_{verb}", what)
        verbs.names(parser, f"profiles (default: {default})")
        _add_timeout(parser)
        _add_drain(parser)

    hold = verbs.add("hold", "operate:run_hold", "stop everything and keep it so, for other work")
    hold.add_argument(
        "--for",
        dest="hold_s",
        metavar="TIME",
        type=_duration,
        help="end by itself after this long (default: until a switch or start, also over reboots)",
    )
    _add_timeout(hold)
    _add_drain(hold)
    verbs.add("cancel", "operate:run_cancel", "cancel the running operation and roll it back")

    mark = verbs.add("mark", "operate:run_mark", "say who is told about a profile")
    verbs.name(mark)
    mark.add_argument(
        "mark", metavar="MARK", choices=[m.value for m in Mark], help="live, standby or retired"
    )


def _add_root_verbs(verbs: _Verbs) -> None:
    apply = verbs.add("apply", "apply:run", "install units for the profiles (root)")
    apply.add_argument("--dry-run", action="store_true", help="only show the differences")
    drift = apply.add_mutually_exclusive_group()
    drift.add_argument(
        "--adopt-changes", action="store_true", help="keep hand edits of units as overrides"
    )
    drift.add_argument("--discard", action="store_true", help="replace hand-edited units")

    edit = verbs.add(
        "edit", "edit:run", "edit a profile, check it, show the difference, apply it (root)"
    )
    verbs.name(edit)
    edit.add_argument("--yes", "-y", action="store_true", help="apply without asking")


def _add_own_verbs(verbs: _Verbs) -> None:
    profile = verbs.add(
        "profile", "profile:run", "check profile files, or show the units they make"
    )
    profile.add_argument(
        "action", metavar="ACTION", choices=["validate", "render"], help="validate or render"
    )
    profile.add_argument(
        "targets", metavar="FILE", nargs="*", help="files, or names of profiles (default: all)"
    )

    config = verbs.add("config", "config:run", "show or check the settings")
    config.add_argument(
        "action",
        metavar="ACTION",
        choices=["show", "validate", "path"],
        help="show, validate or path",
    )
    verbs.add("version", "version:run", "print the versions of the CLI and the supervisor")
    completion = verbs.add("completion", "completion:run", "print a completion script for a shell")
    completion.add_argument(
        "shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish"
    )


def _add_timeout(parser: Parser) -> None:
    parser.add_argument(
        "--timeout",
        dest="timeout_s",
        metavar="TIME",
        type=_duration,
        help="stop waiting after this long (exit 124); the operation continues",
    )


def _add_drain(parser: Parser) -> None:
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
    seconds = duration_s(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f'"{text}" is no duration; write 30s, 10m or 1h30m')
    return seconds


def _count(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f'"{text}" is no number of lines')

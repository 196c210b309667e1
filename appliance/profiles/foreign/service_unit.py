"""Reader of systemd units: the command of ExecStart=, its variables, user, directory and limits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from appliance.model.profile_values import Override
from appliance.model.quantities import duration_s
from appliance.profiles.foreign.server_command import (
    MAX_CHARACTERS,
    Argument,
    Disposition,
    DispositionKind,
    ImportFaultError,
    ServerCommand,
    setting,
)
from appliance.profiles.foreign.shell import Reference, Variables, Word, template_of
from appliance.switch.units.overrides import ALLOWED, refusal
from appliance.switch.units.text import Section, sections_of, words_of

_PREFIXES: Final = "-@:+!|"
_OURS: Final = "the unit that apply writes has its own"
_SERVED_WORDS: Final = """
    Unit.After Unit.Wants Unit.Documentation Unit.Description Unit.Requires Unit.StartLimitBurst
    Unit.StartLimitIntervalSec Service.Type Service.Restart Service.RestartSec
    Service.StandardOutput Service.StandardError Service.KillMode Service.KillSignal
    Service.SyslogIdentifier Service.SuccessExitStatus Service.NotifyAccess Service.Group
    Service.SupplementaryGroups Service.TimeoutStartSec Service.PrivateTmp Service.NoNewPrivileges
    Service.ProtectSystem Service.ProtectHome Service.RuntimeDirectory Service.StateDirectory
    Service.CacheDirectory Service.LogsDirectory
"""
_SERVED_BY_OURS: Final = frozenset(_SERVED_WORDS.split())
_READ: Final = frozenset(
    {
        *("Service.ExecStart", "Service.Environment", "Service.User", "Service.WorkingDirectory"),
        *("Service.EnvironmentFile", "Service.TimeoutStopSec"),
    }
)
_BOOT: Final = "a committed profile starts at boot: appliance switch NAME commits it"


def read_unit(text: str, name: str) -> Iterator[ServerCommand]:
    """Yield the command of each ExecStart= of a unit.

    Args:
        text: The unit file, with its drop-ins after it.
        name: Name of the unit, with its suffix.

    Raises:
        ImportFaultError: the file is too long, is no service, or a quote is not closed.
    """
    if len(text) > MAX_CHARACTERS:
        raise ImportFaultError(f"has more than {MAX_CHARACTERS >> 10} KiB")
    sections = {section.name: section for section in sections_of(text)}
    service = sections.get("Service")
    if service is None or not service.values("ExecStart"):
        raise ImportFaultError("is no service: it has no ExecStart= below [Service]")
    unit = _Unit(name, service)
    described = sections["Unit"].values("Description") if "Unit" in sections else ()
    fates = [fate for section in sections.values() for fate in _fates(section)]
    for line in _since_reset(service.values("ExecStart")):
        yield unit.command(line, described[-1] if described else "", fates)


class _Unit:
    def __init__(self, name: str, service: Section) -> None:
        self._name = name
        self._service = service
        self._user = service.values("User")[-1] if service.values("User") else ""
        self._specifiers = _specifiers(name, self._user)
        self._environment = self._variables()

    def command(self, line: str, description: str, fates: Sequence[Disposition]) -> ServerCommand:
        variables = Variables(self._environment)
        words = [
            w for word in self._words(line.lstrip(_PREFIXES)) for w in _expanded(word, variables)
        ]
        directory = self._last("WorkingDirectory").lstrip("-")
        stop_s = duration_s(self._last("TimeoutStopSec"))
        return ServerCommand(
            origin="",
            name=self._name.removesuffix(".service").replace("@", "-").rstrip("-"),
            description=description,
            argv=tuple(words),
            environment=self._environment,
            directory=self._specified(directory).text if directory else "/",
            user="" if self._user == "root" else self._user,
            unit=_carried(self._service),
            stop_s=None if stop_s is None else round(stop_s),
            dispositions=tuple(fates),
        )

    def _last(self, key: str) -> str:
        values = self._service.values(key)
        return values[-1] if values else ""

    def _words(self, value: str) -> Iterator[Argument]:
        try:
            words = words_of(value)
        except ValueError as error:
            raise ImportFaultError(str(error)) from error
        for word in words:
            yield self._specified(word)

    def _specified(self, text: str) -> Argument:
        """Return a text with systemd's specifiers replaced, as far as they are known."""
        parts = text.split("%%")
        unknown = ""
        for place, part in enumerate(parts):
            for letter, value in self._specifiers.items():
                parts[place] = parts[place].replace(f"%{letter}", value)
            if "%" in parts[place]:
                at = part.find("%")
                unknown = part[at : at + 2]
        note = f"{unknown}: the file does not tell what systemd puts there" if unknown else ""
        return Argument(text="%".join(parts), is_known=not unknown, note=note)

    def _variables(self) -> Mapping[str, Argument]:
        found: dict[str, Argument] = {}
        for line in _since_reset(self._service.values("Environment")):
            for word in self._words(line):
                name, equals, value = word.text.partition("=")
                if equals:
                    found[name] = Argument(text=value, is_known=word.is_known, note=word.note)
        return found


def _expanded(word: Argument, variables: Variables) -> Iterator[Argument]:
    """Yield what ``$NAME`` and ``${NAME}`` make of a word: alone, ``$NAME`` is split at blanks."""
    if "$" not in word.text or not word.is_known:
        yield word
        return
    template = template_of(word.text)
    match template.parts:
        case (Reference(text=text) as reference,) if not text.startswith("${"):
            alone = Reference(name=reference.name, quoted=False, text=text)
            yield from variables.expand([Word(parts=(alone,))])
        case _:
            yield variables.joined(template)


def _specifiers(name: str, user: str) -> Mapping[str, str]:
    stem = name.partition(".")[0]
    prefix, at, instance = stem.partition("@")
    known_ones = {"n": name, "N": stem, "p": prefix}
    if not at or instance:
        known_ones["i"] = known_ones["I"] = instance
    if user:
        home = "/root" if user == "root" else f"/home/{user}"
        known_ones |= {"u": user, "h": home}
    return known_ones


def _since_reset(values: Sequence[str]) -> Sequence[str]:
    """Return the values after the last empty one, which resets a list."""
    place = max((i for i, value in enumerate(values) if not value), default=-1)
    return values[place + 1 :]


def _carried(service: Section) -> Mapping[str, str]:
    """Return the settings that the profile's unit takes as they are."""
    return {
        f"Service.{key}": value
        for key, value in service.entries
        if _is_carried("Service", key, value)
    }


def _is_carried(section: str, key: str, value: str) -> bool:
    name = f"{section}.{key}"
    if name in _SERVED_BY_OURS or name not in ALLOWED:
        return False
    return refusal(Override(section=section, key=key, values=(value,))) is None


def _fates(section: Section) -> Iterator[Disposition]:
    """Yield what becomes of the settings that are neither read nor carried."""
    for key, value in section.entries:
        name = f"{section.name}.{key}"
        shown = f"{key}={value}"
        if section.name == "Install":
            yield setting(shown, DispositionKind.CHANGED, _BOOT)
        elif name in _SERVED_BY_OURS:
            yield setting(shown, DispositionKind.CHANGED, _OURS)
        elif name == "Service.EnvironmentFile":
            reason = "another file is not read: put its variables into [env]"
            yield setting(shown, DispositionKind.DROPPED, reason)
        elif name not in _READ and not _is_carried(section.name, key, value):
            refused = refusal(Override(section=section.name, key=key, values=(value,)))
            reason = (refused or "").removeprefix(f"{name}: ")
            yield setting(shown, DispositionKind.DROPPED, reason)

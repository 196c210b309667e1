"""Table of an engine's options: which key of a profile is written as which option, and how.

The one owner of this mapping. A module of an engine declares it where it declares the keys: a field of
its options has a `Flag` among its marks, beside its `Doc`; the keys that all engines have stand in a
sequence of their place in a file (``"ctx"``, ``"speculative.tokens"``) and a `Flag`. `option_table` joins
the two into the `OptionTable` of the engine's record (`Engine.option_table`).

- The module writes what has only one form with `OptionTable.written_keys` and `OptionTable.written`. A
  flag of the form `FlagForm.DERIVED` is written by the module's own code, because other keys decide too.
- Rules for ``extra_args`` take `OptionTable.keys`: an option that a key is written as is refused there.
- Who reads a command line finds an option with `OptionTable.named`; `TypedOption.key` is its place in a
  file, and `TypedOption.read` makes the value of the word after it. What a flag of the form
  `FlagForm.DERIVED` says depends on other options: ``--ctx-size`` of llama-server is for all requests.
- Who knows which options a build has compares them with `TypedOption.names`: all but `Flag.former` are in a build
  from `Flag.since` on. ``make check-options`` compares both with the newest releases.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Final, Union, get_args, get_origin, get_type_hints

from appliance.model.engine_build import either
from appliance.model.json_reader import decode_json
from appliance.model.quantities import size_text
from appliance.model.spec import EngineOptions, Profile
from appliance.model.value_types import Doc, ValueParser


class FlagForm(StrEnum):
    """Form in which a value stands on a command line."""

    VALUE = "value"
    """One word after the option."""
    SWITCH = "switch"
    """The option alone, where the value is true."""
    EITHER = "either"
    """The option where the value is true, its contrary where it is false."""
    COMMAS = "commas"
    """One word after the option: the values with commas between them."""
    REPEATED = "repeated"
    """The option again for each value."""
    JSON = "json"
    """One word after the option: a JSON object."""
    DERIVED = "derived"
    """Written by the engine's module, because other keys decide too."""


class ValueKind(StrEnum):
    """Kind of a value in a file, or of each value of a list."""

    SWITCH = "true or false"
    WHOLE = "whole number"
    NUMBER = "number"
    TEXT = "text"


_KINDS: Final = {bool: ValueKind.SWITCH, int: ValueKind.WHOLE, float: ValueKind.NUMBER}
_TRUE: Final = ("1", "true", "on")
_FALSE: Final = ("0", "false", "off")


def word(value: object) -> str:
    """Return a value as the one word that engines read."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def compact_json(value: Mapping[str, object]) -> str:
    """Return a value as JSON on one line, keys in the order given."""
    return json.dumps(value, separators=(",", ":"))


def bytes_text(text: str) -> str:
    """Return what a profile writes for a number of bytes. Raises `ValueError`."""
    return size_text(int(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Option of an engine's command line, as a mark of the key that it is written from."""

    names: tuple[str, ...]
    """Spellings of the option; the first is the one that is written. Empty: only older builds have it."""
    form: FlagForm = FlagForm.VALUE
    contrary: tuple[str, ...] = ()
    """Spellings of the option that says the opposite; the first is written for `FlagForm.EITHER`."""
    kind: ValueKind | None = None
    """Kind of the value; None: by the type of the field."""
    former: tuple[str, ...] = ()
    """Spellings that only older builds have; they are read, and written as `before` alone."""
    since: str = ""
    """First build or release that is known to have the option; empty: older than this table."""
    before: str = ""
    """Name of the option in older builds, which the wrapper takes where the first is not known; empty:
    there is none."""
    write: Callable[..., str] = word
    """Function that makes the word of a value."""
    read: Callable[[str], object] | None = None
    """Function that makes the value, as a file has it, of a word. Raises `ValueError`. None: by the
    kind."""

    def arguments(self, value: object) -> tuple[str, ...]:
        """Return the arguments that say `value`: none for None, nor for the form `FlagForm.DERIVED`."""
        if value is None or self.form is FlagForm.DERIVED:
            return ()
        name = self.names[0]
        if self.form in {FlagForm.SWITCH, FlagForm.EITHER}:
            return (name,) if value else self.contrary[:1] if self.form is FlagForm.EITHER else ()
        items = value if self.form is FlagForm.REPEATED and isinstance(value, tuple) else (value,)
        written = tuple(text for item in items for text in (name, self._word(item)))
        return either(written, (self.before, *written[1:])) if self.before else written

    def _word(self, value: object) -> str:
        if self.form is FlagForm.JSON and isinstance(value, Mapping):
            return compact_json(value)
        if self.form is FlagForm.COMMAS and isinstance(value, tuple):
            return ",".join(map(self.write, value))
        return self.write(value)


def flag(
    *names: str,
    form: FlagForm = FlagForm.VALUE,
    contrary: tuple[str, ...] = (),
    kind: ValueKind | None = None,
    former: tuple[str, ...] = (),
    since: str = "",
    before: str = "",
    write: Callable[..., str] = word,
    read: Callable[[str], object] | None = None,
) -> Flag:
    """Make the flag with these spellings; see `Flag`."""
    return Flag(
        names=names,
        form=form,
        contrary=contrary,
        kind=kind,
        former=former,
        since=since,
        before=before,
        write=write,
        read=read,
    )


CommonFlags = Sequence[tuple[str, Flag]]
"""Flags of the keys that all engines have, by their place in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedOption:
    """Option of an engine, and the key of a profile that it is written from."""

    key: str
    """Place of the key in a file, with dots: ``ctx``, ``speculative.tokens``, ``vllm.dtype``."""
    shown: str
    """The same as messages name it: ``[vllm] dtype``."""
    flag: Flag
    kind: ValueKind

    @property
    def names(self) -> tuple[str, ...]:
        """Return all spellings, also those that say the opposite and those of older builds."""
        return (*self.flag.names, *self.flag.contrary, *self.flag.former)

    def read(self, text: str) -> object:
        """Return the value, as a file has it, that the word after the option means.

        Raises:
            ValueError: it means none.
        """
        if self.flag.read is not None:
            return self.flag.read(text)
        match self.flag.form:
            case FlagForm.JSON:
                return _json_object(text)
            case FlagForm.COMMAS:
                return [_value(self.kind, item) for item in text.split(",")]
            case FlagForm.REPEATED:
                return [_value(self.kind, text)]
            case _:
                return _value(self.kind, text)


def _json_object(text: str) -> object:
    value = decode_json(text)
    if not isinstance(value, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - a fault of the text
    return value


def _value(kind: ValueKind, text: str) -> object:
    if kind is ValueKind.SWITCH and text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    if kind is ValueKind.SWITCH:
        raise ValueError("is neither true nor false")
    if kind is ValueKind.TEXT:
        return text
    return int(text) if kind is ValueKind.WHOLE else float(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaggedField:
    """Field of an engine's options that is written as an option."""

    name: str
    key: str
    """Name of its key in a file."""
    flag: Flag
    kind: ValueKind
    default: object


class OptionTable:
    """Options of an engine that keys of a profile are written as."""

    def __init__(
        self,
        options: Sequence[TypedOption],
        common: CommonFlags = (),
        own: Sequence[FlaggedField] = (),
    ) -> None:
        """Take what `option_table` made; of two options with one spelling the first has it."""
        self.options: Final = tuple(options)
        self._common: Final = tuple(common)
        self._own: Final = tuple(own)
        self._by_name: Final = {
            name: option for option in reversed(self.options) for name in option.names
        }

    def named(self, name: str) -> TypedOption | None:
        """Return the option with the spelling `name`, such as ``-c``; None: no key is written as it."""
        return self._by_name.get(name)

    @property
    def keys(self) -> Mapping[str, str]:
        """Return the key of each spelling, as messages name it."""
        return {name: option.shown for name, option in self._by_name.items()}

    def written_keys(self, profile: Profile) -> Iterator[str]:
        """Return the arguments of the keys that all engines have."""
        for place, flag in self._common:
            value: object = profile
            for name in place.split("."):
                value = getattr(value, name, None)
            yield from flag.arguments(value)

    def written(self, options: EngineOptions) -> Iterator[str]:
        """Return the arguments of the engine's own keys that differ from their defaults."""
        for one in self._own:
            value = getattr(options, one.name)
            if value != one.default:
                yield from one.flag.arguments(value)


NO_OPTIONS: Final = OptionTable(())


def option_table(
    engine: str,
    options: type[EngineOptions],
    common: CommonFlags,
    more: Sequence[tuple[str, Flag]] = (),
) -> OptionTable:
    """Make the table of an engine.

    Args:
        engine: Name of the engine, and of its table in a file.
        options: Type of that table.
        common: Flags of the keys that all engines have.
        more: Further flags of keys in the engine's table, by their field: other options that mean the
            same.
    """
    own = tuple(_flagged_fields(options))
    by_name = {one.name: one for one in own}
    typed = (
        *(TypedOption(key=k, shown=k, flag=f, kind=f.kind or ValueKind.TEXT) for k, f in common),
        *(_own(engine, one, one.flag) for one in own),
        *(_own(engine, by_name[name], flag) for name, flag in more),
    )
    return OptionTable(typed, common, own)


def _own(engine: str, one: FlaggedField, flag: Flag) -> TypedOption:
    return TypedOption(
        key=f"{engine}.{one.key}",
        shown=f"[{engine}] {one.key}",
        flag=flag,
        kind=flag.kind or one.kind,
    )


def _flagged_fields(options: type[EngineOptions]) -> Iterator[FlaggedField]:
    """Yield the fields of an engine's options that have a `Flag`, in their order."""
    hints = get_type_hints(options, include_extras=True)
    for one in fields(options):
        marks = get_args(hints[one.name])[1:]
        names = [mark.key for mark in marks if isinstance(mark, Doc) and mark.key]
        for mark in marks:
            if isinstance(mark, Flag):
                yield FlaggedField(
                    name=one.name,
                    key=(*names, one.name)[0],
                    flag=mark,
                    kind=_kind(hints[one.name]),
                    default=one.default
                    if one.default_factory is MISSING
                    else one.default_factory(),
                )


def _kind(hint: object) -> ValueKind:
    """Return the kind of values that a field of the type `hint` has in a file."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        parsed = any(isinstance(mark, ValueParser) for mark in arguments[1:])
        return ValueKind.TEXT if parsed else _kind(arguments[0])
    if origin in {Union, UnionType}:
        return _kind(next(one for one in arguments if one is not NoneType))
    if origin is tuple:
        return _kind(arguments[0])
    return _KINDS.get(hint, ValueKind.TEXT) if isinstance(hint, type) else ValueKind.TEXT

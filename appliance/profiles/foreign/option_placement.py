"""Placement of an engine's options in a profile: a key, ``extra_args``, or a reason against both.

Which option is which key's, and how its value is read, is the engine's own (`Engine.option_table`), as
are the options that are refused (`Engine.arguments`). Options whose values depend on others are placed
by the functions of `appliance.profiles.foreign.special_options`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared import refused_arguments as why
from appliance.engines.shared.option_table import FlagForm, TypedOption, ValueKind
from appliance.model.profile_values import Gpus
from appliance.profiles.foreign.host_paths import HostPaths
from appliance.profiles.foreign.launchers import ModelServer
from appliance.profiles.foreign.option_reading import EngineOption
from appliance.profiles.foreign.option_values import (
    HF_REPOSITORY,
    HIDDEN,
    SECRET,
    json_word,
    truth_of,
    whole_number,
)
from appliance.profiles.foreign.profile_draft import EXTRA_ARGS, DraftArgument, DraftKey
from appliance.profiles.foreign.server_command import (
    Argument,
    Disposition,
    DispositionKind,
    PartKind,
)

ALWAYS_SO: Final[Mapping[str, str]] = {
    why.HOST: "a backend listens on loopback: clients of other machines use the gateway",
    why.KEY: "the gateway holds the keys: appliance key add NAME",
    **{reason: reason for reason in (why.TLS, why.CORS, why.METRICS, why.OFFLINE)},
}
"""Sentences about what the appliance does in place of an option, by the reason for which the option is refused."""
NO_INDEXES: Final = "gpus has the indexes of GPUs: these names have none"
AS_BY_DEFAULT: Final = "it is so without it"
_NO_OPTION: Final = "it is no option, and the engine takes one model"
_MODEL: Final = "model"
_PORT: Final = "--port"
_PATH_OPTIONS: Final = re.compile(
    r"--(?:.*-file|.*-path|lora|lora-scaled|control-vector.*|mmproj|chat-template|download-dir|tokenizer"
    r"|lookup-cache-static|spec-draft-model|model-draft|model-vocoder)\Z|-md\Z|-mm\Z"
)
_SIDES: Final = frozenset({"k", "v"})
SpecialPlacement = Callable[["OptionPlacement", EngineOption, TypedOption], None]
"""Function that places an option whose value is not simply its key's."""


class OptionPlacement:
    """Keys and extra arguments of a profile, as far as options have been placed.

    Args:
        server: The server that the options are for.
        paths: Paths of its command.
        special: Placements by the key, as `TypedOption.key` names it; "" is for options without one.
    """

    def __init__(
        self, server: ModelServer, paths: HostPaths, special: Mapping[str, SpecialPlacement]
    ) -> None:
        engine = ENGINES[server.engine]
        self.engine: Final = server.engine
        self.paths: Final = paths
        self._table = engine.option_table
        self._rules = engine.arguments or why.ArgumentRules(refused={}, keys={})
        self._special = special
        self._is_inside = bool(server.command.image)
        self.keys: dict[tuple[str, str], DraftKey] = {}
        self.extra: list[DraftArgument] = []
        self.fates: list[Disposition] = []
        self.served: list[str] = []
        self.adapters: Mapping[str, str] = {}
        """Paths of adapters by name."""
        self.adapter_rank = 0
        """Highest rank of an adapter; 0: not said."""
        self.model = Argument(text="")
        """Model as the options name it; empty: they do not."""
        self.total_ctx: int | None = None
        """Tokens of the context as the engine counts them; None: not said."""
        self.gpus: Gpus | None = server.command.gpus
        self.port: int | None = None

    def switches(self) -> frozenset[str]:
        """Return the options without a value, as far as their keys tell."""
        forms = {FlagForm.SWITCH, FlagForm.EITHER}
        found = {name for o in self._table.options if o.flag.form in forms for name in o.names}
        return frozenset(found | {"--enable-auto-tool-choice"})

    def place(self, option: EngineOption) -> None:
        """Put one option where it belongs."""
        typed = self._typed(option.name)
        if option.is_default:
            self.tell(option, DispositionKind.CARRIED, AS_BY_DEFAULT)
            return
        reason = self._rules.reason_against(option.name)
        if reason is not None and option.name != _PORT:
            outcome = DispositionKind.CHANGED if reason in ALWAYS_SO else DispositionKind.DROPPED
            self.tell(option, outcome, ALWAYS_SO.get(reason, reason))
        elif option.unknown and (typed is None or typed.key != _MODEL):
            self.tell(option, DispositionKind.DROPPED, option.unknown)
        elif option.name == _PORT:
            self.port = whole_number(option.value)
            self.keep(option, "port")
        elif typed is None:
            self.place_extra(option)
        elif (special := self._special.get(typed.key)) is not None:
            special(self, option, typed)
        else:
            self.place_key(option, typed)

    def place_alone(self, words: Iterable[Argument]) -> None:
        """Place words that belong to no option: the first may be the model."""
        for word in words:
            option = EngineOption(name="", values=(word,), words=(word,))
            if not self.model.text and self.engine != "llama-server":
                self.place_model(option, word)
            else:
                self.tell(option, DispositionKind.DROPPED, word.note or _NO_OPTION)

    def place_model(self, option: EngineOption, model: Argument) -> None:
        """Take a model; what is not known of it is told with the option."""
        self.model = model
        if option.unknown:
            self.tell(option, DispositionKind.DROPPED, option.unknown)
        else:
            self.keep(option, _MODEL)

    def place_key(self, option: EngineOption, typed: TypedOption) -> None:
        """Set the key that an option is written from, to what the table reads of its value."""
        values = tuple(self.located(option.name, word) for word in option.values)
        if lost := [word for word in values if not word.is_known]:
            self.tell(option, DispositionKind.DROPPED, lost[0].note)
            return
        try:
            value = self._read(option, typed, ",".join(word.text for word in values))
        except ValueError as error:
            self.tell(option, DispositionKind.DROPPED, f"{typed.shown}: {error}")
            return
        self.set(typed.key, value, option, "; ".join(word.note for word in values if word.note))

    def place_extra(self, option: EngineOption) -> None:
        """Put an option without a key into ``extra_args``."""
        words = [self.located(option.name, word) for word in option.words]
        if lost := [word for word in words if not word.is_known]:
            self.tell(option, DispositionKind.DROPPED, lost[0].note)
            return
        note = "; ".join(dict.fromkeys(word.note for word in words if word.note))
        place = f"{EXTRA_ARGS} {len(self.extra)}"
        texts = tuple(word.text for word in words)
        self.extra.append(DraftArgument(words=texts, comment=note, place=place))
        self.tell(option, DispositionKind.CHANGED if note else DispositionKind.CARRIED, note, place)

    def set(self, path: str, value: object, option: EngineOption, note: str = "") -> None:
        """Set a key by its path, such as ``speculative.ngram.match``; the last of several options counts."""
        table, _, key = path.rpartition(".")
        if key in _SIDES:
            table, _, outer = table.rpartition(".")
            before = self.keys.get((table, outer))
            pair = before.value if before is not None and isinstance(before.value, dict) else {}
            key, value = outer, {**pair, key: value}
        comment = note or option.note
        self.keys[table, key] = DraftKey(table=table, key=key, value=value, comment=comment)
        outcome = DispositionKind.CHANGED if comment else DispositionKind.CARRIED
        self.tell(option, outcome, comment, f"[{table}] {key}" if table else key)

    def keep(self, option: EngineOption, place: str) -> None:
        """Tell of an option that a key has, perhaps with an assumption."""
        outcome = DispositionKind.CHANGED if option.note else DispositionKind.CARRIED
        self.tell(option, outcome, option.note, place)

    def tell(
        self, option: EngineOption, outcome: DispositionKind, reason: str = "", place: str = ""
    ) -> None:
        """Record what became of an option."""
        text = masked(option)
        if option.source:
            text = f"{option.source}: {text}"
        self.fates.append(
            Disposition(
                part=PartKind.OPTION, text=text, outcome=outcome, reason=reason, place=place
            )
        )

    def located(self, option: str, word: Argument) -> Argument:
        """Return a value with the path in it as the host has it."""
        text = word.text
        is_path = text.startswith(("~/", "./", "../")) or (
            _PATH_OPTIONS.match(option) is not None
            and "/" in text
            and HF_REPOSITORY.match(text) is None
            and not text.startswith("-")
        )
        if is_path or (text.startswith("/") and self._is_inside):
            return self.paths.located(word)
        before, equals, path = text.partition("=")
        if equals and path.startswith("/") and self._is_inside:
            located = self.paths.located(replace(word, text=path))
            return replace(located, text=f"{before}={located.text}")
        return word

    def _typed(self, name: str) -> TypedOption | None:
        """Return the option of the table that a spelling, or the beginning of one, means."""
        spelling = self._rules.spelling_with_key(name)
        return self._table.named(name) or (
            None if spelling is None else self._table.named(spelling)
        )

    def _read(self, option: EngineOption, typed: TypedOption, text: str) -> object:
        """Return the value of an option. Raises `ValueError`."""
        if not option.values:
            if typed.flag.form not in {FlagForm.SWITCH, FlagForm.EITHER, FlagForm.DERIVED}:
                raise ValueError("it has no value")
            return not self._is_contrary(option.name, typed)
        if typed.kind is ValueKind.SWITCH and (truth := truth_of(text)) is not None:
            return truth is not self._is_contrary(option.name, typed)
        number = whole_number(text)
        if typed.kind is ValueKind.WHOLE and number is not None:
            return number
        if typed.flag.form is FlagForm.JSON and (path := option.json_path):
            return self._json_at(typed, path, text)
        if typed.flag.form is FlagForm.REPEATED:
            before = self.keys.get((self.engine, typed.key.rpartition(".")[2]))
            earlier = before.value if before is not None and isinstance(before.value, list) else []
            return [*earlier, *_separate(text)]
        is_count = typed.flag.read is not None and number is not None
        return typed.read(str(number) if is_count else text)

    def _is_contrary(self, name: str, typed: TypedOption) -> bool:
        return name in typed.flag.contrary or (
            name.startswith("--no-") and name not in typed.flag.names
        )

    def _json_at(self, typed: TypedOption, path: tuple[str, ...], text: str) -> object:
        """Return a table with the value of ``--option.key value`` beside those of earlier ones."""
        before = self.keys.get((self.engine, typed.key.rpartition(".")[2]))
        value: object = json_word(text)
        for name in reversed(path):
            value = {name: value}
        outer = before.value if before is not None and isinstance(before.value, dict) else {}
        return {**outer, **value} if isinstance(value, dict) else outer


def _separate(text: str) -> list[str]:
    """Return the overrides ``pattern=buffer`` that commas separate; a comma in a pattern separates none."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and "=" not in parts[-1]:
            parts[-1] = f"{parts[-1]},{part}"
        else:
            parts.append(part)
    return parts


def masked(option: EngineOption) -> str:
    """Return an option's text, without the secret that it may have."""
    if SECRET.search(option.name) is None or not option.values or option.name.endswith("-file"):
        return option.text
    return f"{option.name} {HIDDEN}"

"""Drafts of profiles: one of every model server, from its options, its variables and what surrounds it.

Variables of llama-server that are options count as options; the rest goes to ``[env]`` unless the appliance does
in its place what it did. ``ollama serve`` is no engine here: it becomes a command that has its address in a
variable, because it takes no options (envconfig/config.go).
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, get_args

from appliance.engines.shared import refused_arguments as why
from appliance.engines.shared.llama_cpp import DEFAULT_BATCH
from appliance.model.profile_values import Gpus
from appliance.model.value_types import Check, ServedName, WrongValueError
from appliance.profiles.foreign.containers import HostPaths, indexes_of
from appliance.profiles.foreign.launchers import OLLAMA, ModelServer
from appliance.profiles.foreign.option_placement import ALWAYS_SO, NO_INDEXES, OptionPlacement
from appliance.profiles.foreign.option_reading import (
    HF_REPOSITORY,
    HIDDEN,
    LLAMA_SWITCHES,
    LLAMA_VARIABLE,
    SECRET,
    CommandLineStyle,
    EngineOption,
    preset_option,
    read_options,
    variable_option,
)
from appliance.profiles.foreign.profile_draft import NOT_FOUND, DraftKey, HostFacts, ProfileDraft
from appliance.profiles.foreign.server_command import (
    Argument,
    Disposition,
    DispositionKind,
    ImportFaultError,
    PartKind,
    ServerCommand,
    setting,
)

_TOP_KEYS: Final = """
    description engine binary model served adapters port gpus ctx parallel kv thinking tool_parser warm_up user
"""
_TOP_ORDER: Final = tuple(_TOP_KEYS.split())
_LLAMA: Final = "llama-server"
_DEFAULT_PORTS: Final = {_LLAMA: 8080, "vllm": 8000, "sglang": 30000}
_SEVERAL: Final = frozenset(
    {"--served-model-name", "--lora-modules", "--lora-paths", "--device-ids"}
)
_MOST_SERVED: Final = 64
_MOST_DESCRIPTION: Final = 200
_CPU_IMAGE: Final = re.compile(r"llama\.cpp:(?:server|full)(?:-b\d+)?\Z|[-:]cpu\b")
_NO_DOWNLOAD: Final = "a start never downloads: fetch the file, and name it"


def draft_of(server: ModelServer, source: str, host: HostFacts) -> ProfileDraft:
    """Return the draft of the profile for a model server.

    Args:
        server: The server, of an engine that is known.
        source: Name of the source, for comments.
        host: Facts of this machine.

    Raises:
        ImportFaultError: no profile can be made, for example without a known model.
    """
    return _Drafting(server, host).draft(source)


class _Drafting:
    def __init__(self, server: ModelServer, host: HostFacts) -> None:
        self._server = server
        self._command = server.command
        self._host = host
        self._paths = HostPaths(server.command, host.home_of)
        self._placed = OptionPlacement(server, self._paths)
        self._fates: list[Disposition] = []

    def draft(self, source: str) -> ProfileDraft:
        alone, options = self._options()
        for option in options:
            self._placed.place(option)
        self._placed.place_alone(alone)
        self._place_variables()
        self._place_model()
        name = self._name()
        self._place_program()
        self._place_served(name)
        self._place_adapters()
        self._place_port()
        self._place_gpus()
        self._place_capacity()
        self._place_rest()
        return ProfileDraft(
            name=name,
            origin=", ".join(filter(None, [source, self._command.origin])),
            keys=tuple(self._ordered()),
            extra_args=tuple(self._placed.extra),
            dispositions=(*self._placed.fates, *self._fates, *self._command.dispositions),
        )

    def _options(self) -> tuple[Sequence[Argument], Sequence[EngineOption]]:
        """Return the words that are no options, and the options; those of variables count first."""
        arguments = self._server.arguments
        if self._server.engine != _LLAMA:
            style = CommandLineStyle(
                switches=self._placed.switches(), several=_SEVERAL, joins_values=True
            )
            return read_options(arguments, style)
        variables = self._command.environment.items()
        set_by_variables = chain.from_iterable(variable_option(*row) for row in variables)
        if self._command.is_preset:
            given = chain.from_iterable(map(preset_option, arguments))
            return (), (*set_by_variables, *given)
        alone, options = read_options(arguments, CommandLineStyle(switches=LLAMA_SWITCHES))
        return alone, (*set_by_variables, *options)

    def _set(self, key: str, value: object, comment: str = "", table: str = "") -> None:
        found = DraftKey(table=table, key=key, value=value, comment=comment)
        self._placed.keys[table, key] = found

    def _place_variables(self) -> None:
        for name, value in self._command.environment.items():
            if self._server.engine == _LLAMA and name.startswith(LLAMA_VARIABLE):
                continue
            placed = _placed_variable(name, value, self._command, self._paths)
            self._placed.fates.append(placed.fate)
            if placed.key is not None:
                self._placed.keys["env", name] = placed.key
            if placed.gpus is not None:
                self._placed.gpus = _gpus_among(self._placed.gpus, placed.gpus)

    def _place_not_needed(self, place: str, reason: str) -> None:
        """Record the reason why a key that was placed is not needed after all."""
        for index, fate in enumerate(self._placed.fates):
            if fate.key == place:
                changed = replace(fate, outcome=DispositionKind.CHANGED, reason=reason, key=None)
                self._placed.fates[index] = changed

    def _place_model(self) -> None:
        model = self._placed.model
        if not model.text:
            options = [fate.text for fate in self._placed.fates]
            fetched = [text for text in options if "-url" in text or "docker-repo" in text]
            if fetched:
                raise ImportFaultError(f"{fetched[0]}: {_NO_DOWNLOAD}")
            raise ImportFaultError("the command names no model")
        if not model.is_known:
            raise ImportFaultError(f"its model is not known: {model.note}")
        is_repository = HF_REPOSITORY.match(model.text) and self._server.engine != _LLAMA
        if model.text.startswith("hf:"):
            self._set("model", model.text, model.note)
        elif is_repository:
            self._set("model", f"hf:{model.text}", model.note)
        else:
            located = self._paths.located(model)
            if not located.is_known:
                raise ImportFaultError(f"its model is not known: {located.note}")
            self._set("model", located.text, located.note)

    def _place_program(self) -> None:
        program, note = self._server.program, ""
        directory, _, name = program.rpartition("/")
        if name.startswith("python") and self._server.engine == "vllm":
            program = posixpath.join(directory, "vllm") if directory else ""
            note = f"was {self._server.program} -m: the program beside it" if directory else ""
        elif name.startswith("python") and not directory:
            program = ""
        if self._command.image or not program:
            program = ""
        elif "/" in program:
            located = self._paths.located(Argument(text=program))
            program, note = located.text, note or located.note
        else:
            program = self._host.find_program(program) or ""
        if not program.startswith("/"):
            wanted = self._server.engine
            found = self._host.find_program(wanted)
            program = found or f"/usr/local/bin/{wanted}"
            note = "" if found else NOT_FOUND
        self._set("engine", self._server.engine)
        self._set("binary", program, note)

    def _place_served(self, name: str) -> None:
        names = list(dict.fromkeys([*self._command.served, *self._placed.served]))
        good = list(dict.fromkeys(filter(None, map(_served_name, names))))[:_MOST_SERVED]
        if self._server.engine == "sglang":
            for other in good[1:]:
                reason = "SGLang answers to one name"
                self._fates.append(setting(f"name {other}", DispositionKind.DROPPED, reason))
            good = good[:1]
        if good and good != [name]:
            changed = [n for n in names if n not in good]
            note = (
                f"was {', '.join(changed)}" if changed and self._server.engine != "sglang" else ""
            )
            self._set("served", good, note)

    def _place_adapters(self) -> None:
        rank = {"rank": self._placed.adapter_rank} if self._placed.adapter_rank else {}
        rows = [
            {"name": name, "path": path, **rank}
            for given, path in self._placed.adapters.items()
            if (name := _served_name(given))
        ]
        if rows:
            self._set("adapters", rows)

    def _place_port(self) -> None:
        wanted = self._command.published_port or self._placed.port
        port, note = self._host.free_port(wanted or _DEFAULT_PORTS[self._server.engine])
        self._set("port", port, note)

    def _place_gpus(self) -> None:
        gpus, note = self._placed.gpus, ""
        count = self._command.gpu_count
        layers = self._placed.keys.get((_LLAMA, "gpu_layers"))
        if gpus is None and count is not None:
            gpus, note = tuple(range(count)), f"{count} asked for: the first"
        elif gpus is None and layers is not None and layers.value == 0:
            gpus, note = (), "no layer is on a GPU"
        elif gpus is None and _CPU_IMAGE.search(self._command.image):
            gpus, note = (), "the image is for CPUs"
        if gpus is None:
            return
        if gpus == () and self._placed.keys.pop((_LLAMA, "gpu_layers"), None) is not None:
            self._place_not_needed("[llama-server] gpu_layers", "without GPUs no layer is on one")
        self._set("gpus", gpus if isinstance(gpus, str) else list(gpus), note)

    def _place_capacity(self) -> None:
        keys = self._placed.keys
        parallel = keys.get(("", "parallel"))
        count = parallel.value if parallel is not None and isinstance(parallel.value, int) else 1
        unified = keys.get((_LLAMA, "kv_unified"))
        if unified is not None and (count == 1 or not unified.value):
            del keys[_LLAMA, "kv_unified"]
            self._place_not_needed(
                "[llama-server] kv_unified", "one request at a time shares no cache"
            )
            unified = None
        total = self._placed.total_ctx
        if total is not None and self._server.engine == _LLAMA and count > 1 and unified is None:
            self._set("ctx", total // count, f"-c {total} for {count} requests")
        elif total is not None:
            self._set("ctx", total)
        kv = keys.get(("", "kv"))
        if kv is not None and isinstance(kv.value, dict):
            pair = {"k": "f16", "v": "f16", **kv.value}
            keys["", "kv"] = replace(kv, value=pair["k"] if pair["k"] == pair["v"] else pair)
        batch, ubatch = keys.get((_LLAMA, "batch")), keys.get((_LLAMA, "ubatch"))
        most = batch.value if batch is not None and isinstance(batch.value, int) else DEFAULT_BATCH
        if ubatch is not None and isinstance(ubatch.value, int) and ubatch.value > most:
            note = f"was {ubatch.value}: llama.cpp takes no more than batch"
            keys[_LLAMA, "ubatch"] = replace(ubatch, value=most, comment=note)

    def _place_rest(self) -> None:
        command = self._command
        if command.description:
            text = " ".join(command.description.split())[:_MOST_DESCRIPTION].rstrip("\\ ")
            self._set("description", text)
        if command.user:
            self._set("user", command.user)
        if command.stop_s:
            self._set("stop", f"{command.stop_s}s", table="deadlines")
        if command.on_request:
            note = "a request for it may switch to it, as before"
            self._set("switch", "on-request", note, table="gateway")
        if command.set_parameters:
            self._set("set", dict(command.set_parameters), table="gateway")
        if command.strip_parameters:
            self._set("strip", list(command.strip_parameters), table="gateway")
        for name, value in command.unit.items():
            self._set(name, value, table="unit")
            self._fates.append(
                Disposition(
                    part=PartKind.SETTING,
                    text=f"{name.partition('.')[2]}={value}",
                    outcome=DispositionKind.CARRIED,
                    key=f"[unit] {name}",
                )
            )

    def _name(self) -> str:
        served = [*self._placed.served, *self._command.served]
        first = served[0] if served else model_title(self._placed.model.text)
        return self._host.free_name(self._command.name or first, self._server.engine)

    def _ordered(self) -> Sequence[DraftKey]:
        """Return the keys in the order of a file: the top in its usual order, then the tables."""
        tables = (
            *("", "sampling", "speculative", "speculative.ngram", self._server.engine),
            *("env", "deadlines", "gateway", "unit"),
        )
        places = {key: place for place, key in enumerate(_TOP_ORDER)}

        def order(key: DraftKey) -> tuple[int, int]:
            return tables.index(key.table), 0 if key.table else places.get(key.key, len(places))

        return sorted(self._placed.keys.values(), key=order)


def _served_name(name: str) -> str:
    """Return a name as clients may ask for it; empty: nothing of it can be one."""
    try:
        for mark in get_args(ServedName)[1:]:
            if isinstance(mark, Check):
                mark.check(name)
    except WrongValueError:
        return re.sub(r"[^A-Za-z0-9._:/@+-]+", "-", name)[:128].strip("-._:/@+")
    return name


def model_title(model: str) -> str:
    """Return a name from a model's path or repository."""
    last = model.removeprefix("hf:").rstrip("/").rpartition("/")[2]
    return last.partition(":")[0].removesuffix(".gguf")


_PORT: Final = 11434
_FALLBACK: Final = "/usr/local/bin/ollama"
_ADDRESS: Final = "OLLAMA_HOST"
_LISTENS: Final = "a backend listens on loopback: clients of other machines use the gateway"
_NAMES: Final = "its models have names with a tag, such as qwen3:8b"


def ollama_draft(server: ModelServer, source: str, host: HostFacts) -> ProfileDraft:
    """Return the draft of a profile that runs ``ollama serve``.

    Args:
        server: The server.
        source: Name of the source, for comments.
        host: Facts of this machine.
    """
    command = server.command
    paths = HostPaths(command, host.home_of)
    fates: list[Disposition] = []
    environment: list[DraftKey] = []
    gpus = command.gpus
    for name, value in command.environment.items():
        if name == _ADDRESS:
            fates.append(
                Disposition(
                    part=PartKind.VARIABLE,
                    text=f"{name}={value.text}",
                    outcome=DispositionKind.CHANGED,
                    reason=_LISTENS,
                )
            )
            continue
        placed = _placed_variable(name, value, command, paths)
        fates.append(placed.fate)
        environment += [placed.key] if placed.key is not None else []
        gpus = _gpus_among(gpus, placed.gpus) if placed.gpus is not None else gpus
    name = host.free_name(command.name or OLLAMA, OLLAMA)
    port, note = host.free_port(command.published_port or _PORT)
    keys = [
        _key("engine", "command"),
        _key("served", list(dict.fromkeys([name, "*:*"])), _NAMES),
        _key("port", port, note),
        _key("warm_up", "none"),
    ]
    if command.description:
        keys.insert(0, _key("description", " ".join(command.description.split())))
    if gpus is not None:
        keys.append(_key("gpus", gpus if isinstance(gpus, str) else list(gpus)))
    if command.user:
        keys.append(_key("user", command.user))
    argv = ["/usr/bin/env", f"{_ADDRESS}={{host}}:{{port}}", _program(server, host), "serve"]
    keys += [
        DraftKey(table="command", key="argv", value=argv),
        DraftKey(table="command", key="health", value="/api/version"),
        DraftKey(table="gateway", key="keep_names", value=True),
    ]
    unit = [DraftKey(table="unit", key=key, value=value) for key, value in command.unit.items()]
    return ProfileDraft(
        name=name,
        origin=", ".join(filter(None, [source, command.origin])),
        keys=(*keys, *environment, *unit),
        dispositions=(*fates, *command.dispositions),
    )


def _key(key: str, value: object, comment: str = "") -> DraftKey:
    return DraftKey(table="", key=key, value=value, comment=comment)


def _program(server: ModelServer, host: HostFacts) -> str:
    if server.program.startswith("/") and not server.command.image:
        return server.program
    return host.find_program(OLLAMA) or _FALLBACK


_GPUS: Final = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "NVIDIA_VISIBLE_DEVICES",
)
_HF_CACHES: Final = frozenset(
    {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "LLAMA_CACHE"}
)
_TOKENS: Final = frozenset(
    {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
)
"""Variables about downloads."""
_ENGINE_KEYS: Final = frozenset({"VLLM_API_KEY", "LLAMA_API_KEY"})
_OF_UNITS: Final = frozenset({"PATH", "HOME"})
_OF_CONTAINERS: Final = frozenset(
    {
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_REQUIRE_CUDA",
        "TZ",
        "LANG",
        "LC_ALL",
        "PYTHONUNBUFFERED",
    }
)
_NO_SECRETS: Final = "a unit file is readable by everybody: no secrets in [env]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedVariable:
    """Variable of the environment, and where it is now."""

    fate: Disposition
    key: DraftKey | None = None
    """Key of [env] that has it; None: another key, or none."""
    gpus: Gpus | None = None
    """GPUs that it selects among those of the command; None: it selects none."""


def _placed_variable(
    name: str, value: Argument, command: ServerCommand, paths: HostPaths
) -> _PlacedVariable:
    """Return what becomes of a variable that is no option of its engine."""
    if (reason := _against(name, value, command)) is not None:
        outcome = (
            DispositionKind.DROPPED
            if reason in {_NO_SECRETS, value.note}
            else DispositionKind.CHANGED
        )
        return _PlacedVariable(fate=_fate(name, value, outcome, reason))
    if name in _GPUS:
        found = () if value.text in {"", "none", "void"} else indexes_of(value.text)
        if found is None:
            return _PlacedVariable(fate=_fate(name, value, DispositionKind.DROPPED, NO_INDEXES))
        return _PlacedVariable(
            fate=_fate(name, value, DispositionKind.CARRIED, "", "gpus"), gpus=found
        )
    is_path = value.text.startswith(("~/", "./")) or (
        value.text.startswith("/") and bool(command.image)
    )
    located = paths.located(value) if is_path else value
    if not located.is_known:
        return _PlacedVariable(fate=_fate(name, value, DispositionKind.DROPPED, located.note))
    outcome = DispositionKind.CHANGED if located.note else DispositionKind.CARRIED
    return _PlacedVariable(
        fate=_fate(name, value, outcome, located.note, f"[env] {name}"),
        key=DraftKey(table="env", key=name, value=located.text, comment=located.note),
    )


def _gpus_among(mine: Gpus | None, visible: Gpus) -> Gpus:
    """Return GPUs by the host's indexes: a variable counts those that its container was given."""
    if isinstance(visible, str):
        return visible if mine is None else mine
    if isinstance(mine, str) or mine is None:
        return visible
    return tuple(mine[index] for index in visible if index < len(mine)) or mine


def _against(name: str, value: Argument, command: ServerCommand) -> str | None:
    """Return why a variable is not carried; None: it is."""
    if reason := _OURS.get(name):
        return reason
    if SECRET.search(name):
        return _NO_SECRETS
    if name in _OF_UNITS or (name in _OF_CONTAINERS and command.image):
        return "the unit has its own"
    return None if value.is_known else value.note


def _fate(
    name: str, value: Argument, outcome: DispositionKind, reason: str, place: str = ""
) -> Disposition:
    shown = HIDDEN if SECRET.search(name) else value.text
    return Disposition(
        part=PartKind.VARIABLE, text=f"{name}={shown}", outcome=outcome, reason=reason, key=place
    )


_OURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_TOKENS, why.OFFLINE),
    **dict.fromkeys(_HF_CACHES, "the local Hugging Face cache is hf_home of the settings"),
    **dict.fromkeys(_ENGINE_KEYS, ALWAYS_SO[why.KEY]),
}
"""Sentences about what the appliance does in place of a variable."""

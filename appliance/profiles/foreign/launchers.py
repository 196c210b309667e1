"""Programs that start another one: shells, ``env``, ``docker run``, ``numactl`` and their like.

Each is taken off the command, until the program is a model server; what it did goes to the profile, or
to the dispositions.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from appliance.profiles.foreign.containers import ENGINES as CONTAINER_ENGINES
from appliance.profiles.foreign.containers import container_of
from appliance.profiles.foreign.server_command import (
    Argument,
    DispositionKind,
    ImportFaultError,
    ServerCommand,
    setting,
)
from appliance.profiles.foreign.shell import read_script

OLLAMA: Final = "ollama"
"""Name of the server that is no engine of its own: it runs as a command."""
_MOST_LAUNCHERS: Final = 16
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash"})
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.ASCII | re.DOTALL)
_LIST: Final = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """Model server that a command starts."""

    engine: str
    """Engine by its name in `appliance.engines.ENGINES`, or ``ollama``."""
    program: str
    """Program as the command names it; empty: the one of the container's image."""
    arguments: tuple[Argument, ...]
    """Arguments of the server itself, without the words that select it."""
    command: ServerCommand


def servers_of(command: ServerCommand, depth: int = 0) -> Iterator[ModelServer]:
    """Yield the model servers that a command starts; none for every other command.

    Raises:
        ImportFaultError: launchers nest too deep, or a script inside cannot be read.
    """
    if depth > _MOST_LAUNCHERS:
        raise ImportFaultError(
            f"{command.origin}: more than {_MOST_LAUNCHERS} programs start each other"
        )
    if command.entrypoint:
        whole = (*command.entrypoint, *command.argv)
        yield from servers_of(replace(command, argv=whole, entrypoint=()), depth + 1)
        return
    server = _of_image(command) if command.image else _of_program(command)
    if server is not None:
        yield server
        return
    for inner in _inner(command):
        yield from servers_of(inner, depth + 1)


def _program_name(command: ServerCommand) -> str:
    """Return the name of a command's program without its directory; empty: there is none."""
    if not command.argv or not command.argv[0].is_known:
        return ""
    return command.argv[0].text.rpartition("/")[2]


def _of_program(command: ServerCommand) -> ModelServer | None:
    name = _program_name(command)
    words = tuple(argument.text for argument in command.argv)
    if name.startswith("llama-server"):
        return _server("llama-server", command, 1)
    if (name, *words[1:2]) in _SERVING:
        return _server(name, command, 2)
    return _of_python(command, words) if name.startswith("python") else None


_SERVING: Final = frozenset(
    {("vllm", "serve"), ("sglang", "serve"), (OLLAMA, "serve"), (OLLAMA, "start")}
)
"""Programs and their first words that start a server."""


def _of_python(command: ServerCommand, words: tuple[str, ...]) -> ModelServer | None:
    """Return the server that ``python -m MODULE`` starts."""
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] != "-m":
        place += 1
    if words[place : place + 1] != ("-m",):
        return None
    module = words[place + 1] if len(words) > place + 1 else ""
    if module in {"vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"}:
        return _server("vllm", command, place + 2)
    if module in {"vllm", "vllm.entrypoints.cli.main"} and words[place + 2 : place + 3] == (
        "serve",
    ):
        return _server("vllm", command, place + 3)
    if module in {"sglang.launch_server", "sglang.srt.server"}:
        return _server("sglang", command, place + 2)
    return None


def _of_image(command: ServerCommand) -> ModelServer | None:
    """Return the server that a container runs: its command's program, else what its image starts."""
    server = _of_program(command)
    if server is not None or command.entrypoint is not None:
        return server
    if _program_name(command) in _SHELLS | _PREFIXES.keys():
        return None
    image = command.image.lower()
    words = tuple(argument.text for argument in command.argv)
    for marks, engine in _IMAGES.items():
        if not any(mark in image for mark in marks):
            continue
        is_word_first = words[:1] in _FIRST_WORDS
        if words and not is_word_first and not words[0].startswith("-") and engine != "vllm":
            return None
        return _server(engine, command, 1 if is_word_first else 0, program="")
    return None


_IMAGES: Final[Mapping[tuple[str, ...], str]] = {
    ("llama.cpp", "llama-cpp", "llama-server"): "llama-server",
    ("vllm",): "vllm",
    ("sglang",): "sglang",
    ("ollama",): OLLAMA,
}
"""Engines by parts of the names of images that start them."""
_FIRST_WORDS: Final = frozenset({("--server",), ("-s",), ("serve",)})
"""First words after which the engine's own options begin."""


def _server(
    engine: str, command: ServerCommand, skipped: int, program: str | None = None
) -> ModelServer:
    first = command.argv[0].text if program is None else program
    return ModelServer(
        engine=engine, program=first, arguments=command.argv[skipped:], command=command
    )


def _inner(command: ServerCommand) -> Iterator[ServerCommand]:
    """Yield the commands that a launcher starts; none: the program is no launcher."""
    name = _program_name(command)
    if name in _SHELLS:
        yield from _of_shell(command)
    elif name in CONTAINER_ENGINES:
        inside = container_of(command)
        if inside is not None:
            yield inside
    elif name in _PREFIXES:
        inside = _PREFIXES[name](command)
        if inside.argv:
            yield inside


def _of_shell(command: ServerCommand) -> Iterator[ServerCommand]:
    """Yield the commands in the text of ``bash -c TEXT``; a script in another file is not read."""
    for place, word in enumerate(command.argv[1:], 1):
        if not word.text.startswith("-"):
            return
        if word.text.endswith("c") and not word.text.startswith("--"):
            for text in command.argv[place + 1 : place + 2]:
                if not text.is_known:
                    raise ImportFaultError(f"{command.origin}: {text.note}")
                # What a shell runs is named by its commands, whatever the image starts by itself.
                base = replace(command, argv=(), entrypoint=() if command.image else None)
                yield from read_script(text.text, base)
            return


def _rest(command: ServerCommand, with_value: str = "") -> ServerCommand:
    """Return the command after a launcher's own options.

    Args:
        command: The launcher with its arguments.
        with_value: Short options of the launcher that take a value, such as ``nc``.
    """
    place = 1
    while place < len(command.argv) and command.argv[place].text.startswith("-"):
        option = command.argv[place].text
        place += 1
        if option == "--":
            break
        if len(option) == len("-n") and option[1] in with_value:
            place += 1
    return replace(command, argv=command.argv[place:])


def _env(command: ServerCommand) -> ServerCommand:
    inner = _rest(command, "u")
    environment = dict(inner.environment)
    place = 0
    for place, word in enumerate(inner.argv):  # noqa: B007 - the place after the last assignment
        match = _ASSIGNED.fullmatch(word.text)
        if match is None:
            break
        environment[match[1]] = replace(word, text=match[2])
    else:
        place = len(inner.argv)
    return replace(inner, argv=inner.argv[place:], environment=environment)


def _plain(with_value: str = "") -> Callable[[ServerCommand], ServerCommand]:
    return lambda command: _rest(command, with_value)


def _sudo(command: ServerCommand) -> ServerCommand:
    inner = _rest(command, "ugpC")
    fate = setting(
        "sudo", DispositionKind.DROPPED, "an engine runs as a user of its own, never as root"
    )
    inner = replace(inner, dispositions=(*inner.dispositions, fate))
    return _env(replace(inner, argv=(Argument(text="env"), *inner.argv)))


def _with_unit(command: ServerCommand, **values: str) -> ServerCommand:
    """Return the command with settings of its unit in place of a launcher's options."""
    settings = {f"Service.{key}": value for key, value in values.items()}
    return replace(command, unit={**command.unit, **settings})


def _taskset(command: ServerCommand) -> ServerCommand:
    words = [argument.text for argument in command.argv[1:4]]
    if words[:1] in (["-c"], ["--cpu-list"], ["-ac"]) and _LIST.fullmatch(
        words[1] if words[1:] else ""
    ):
        inner = replace(command, argv=command.argv[3:])
        return _with_unit(inner, CPUAffinity=words[1])
    skipped = 3 if words[:1] == ["-c"] else 2
    shown = " ".join(["taskset", *words[: skipped - 1]])
    fate = setting(shown, DispositionKind.DROPPED, "write [unit] Service.CPUAffinity")
    return replace(command, argv=command.argv[skipped:], dispositions=(*command.dispositions, fate))


def _nice(command: ServerCommand) -> ServerCommand:
    words = [argument.text for argument in command.argv[1:3]]
    level, skipped = "10", 1
    if words[:1] == ["-n"] and words[1:]:
        level, skipped = words[1], 3
    elif words and re.fullmatch(r"-n?-?\d{1,2}|--adjustment=-?\d{1,2}", words[0]):
        level, skipped = re.sub(r"\A(?:-n|--adjustment=|-)", "", words[0]), 2
    inner = replace(command, argv=command.argv[skipped:])
    return _with_unit(inner, Nice=level)


def _numactl(command: ServerCommand) -> ServerCommand:
    """Return the command that numactl starts; bindings to nodes become settings of the unit."""
    unit: dict[str, str] = {}
    fates = []
    place = 1
    while place < len(command.argv) and command.argv[place].text.startswith("-"):
        name, equals, value = command.argv[place].text.partition("=")
        place += 1
        if not equals and name in _NUMA_VALUES and place < len(command.argv):
            value = command.argv[place].text
            place += 1
        shown = f"numactl {name} {value}".strip()
        match name:
            case "-m" | "--membind" if _LIST.fullmatch(value):
                unit |= {"NUMAPolicy": "bind", "NUMAMask": value}
            case "-p" | "--preferred" if _LIST.fullmatch(value):
                unit |= {"NUMAPolicy": "preferred", "NUMAMask": value}
            case "-C" | "--physcpubind" if _LIST.fullmatch(value):
                unit["CPUAffinity"] = value
            case "-i" | "--interleave" if _LIST.fullmatch(value):
                unit |= {"NUMAPolicy": "interleave", "NUMAMask": value}
            case _:
                reason = "the CPUs of a node are not known here: write [unit] Service.CPUAffinity"
                fates.append(setting(shown, DispositionKind.DROPPED, reason))
    inner = replace(
        command, argv=command.argv[place:], dispositions=(*command.dispositions, *fates)
    )
    return _with_unit(inner, **unit)


_NUMA_VALUES: Final = frozenset(
    {
        *("-m", "--membind", "-p", "--preferred", "-C", "--physcpubind"),
        *("-i", "--interleave", "-N", "--cpunodebind"),
    }
)


def _uv(command: ServerCommand) -> ServerCommand:
    """Return the command of ``uv run …``, ``poetry run …`` and the like; other subcommands have none."""
    words = command.argv[1:]
    while words and words[0].text.startswith("-"):
        words = words[1:]
    if not words or words[0].text not in {"run", "exec"}:
        return replace(command, argv=())
    place = 1
    while place < len(words) and words[place].text.startswith("-"):
        place += 2 if words[place].text in _RUNNER_VALUES else 1
    return replace(command, argv=words[place:])


_RUNNER_WORDS: Final = """
    -n -p --directory --env-file --extra --group --name --project --python --with
"""
_RUNNER_VALUES: Final = frozenset(_RUNNER_WORDS.split())
"""Options of ``uv run`` and its like that take a value."""
_PREFIXES: Final[Mapping[str, Callable[[ServerCommand], ServerCommand]]] = {
    "command": _plain(),
    "conda": _uv,
    "env": _env,
    "exec": _plain("a"),
    "ionice": _plain("cn"),
    "micromamba": _uv,
    "nice": _nice,
    "nohup": _plain(),
    "numactl": _numactl,
    "poetry": _uv,
    "setsid": _plain(),
    "stdbuf": _plain("ioe"),
    "sudo": _sudo,
    "taskset": _taskset,
    "time": _plain(),
    "tini": _plain(),
    "unbuffer": _plain(),
    "uv": _uv,
}
"""Programs that start the rest of their arguments."""

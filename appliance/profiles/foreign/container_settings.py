"""Settings of containers: paths on the host, GPUs, published ports, and command lines of docker and podman."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from appliance.model.profile_values import Gpus
from appliance.profiles.foreign.server_command import (
    Argument,
    Disposition,
    DispositionKind,
    ImportFaultError,
    Mount,
    ServerCommand,
    setting,
)

ENGINES: Final = frozenset({"docker", "podman", "nerdctl"})
_SWITCHES: Final = frozenset(
    {
        *(
            "-d",
            "--detach",
            "-i",
            "--interactive",
            "-t",
            "--tty",
            "-it",
            "-ti",
            "-dit",
            "-itd",
            "-td",
        ),
        *(
            "--rm",
            "--init",
            "--privileged",
            "--read-only",
            "-P",
            "--publish-all",
            "--no-healthcheck",
        ),
        *("--sig-proxy", "--disable-content-trust", "--replace", "-q", "--quiet", "--tls-verify"),
    }
)
_BEFORE_RUN: Final = frozenset({"-H", "--host", "-c", "--context", "--config", "-l", "--log-level"})
_MOST_GPUS: Final = 64
_DEVICE: Final = re.compile(r'"?device=([0-9,]+)"?', re.ASCII)
_INDEXES: Final = re.compile(r"\d{1,2}(?:,\d{1,2})*", re.ASCII)

WITHOUT_CONTAINER: Final = "the engine runs on the host, in a unit with limits of its own"
_IMAGE: Final = "the engine runs on the host: install it there, and check binary"
_MEMORY: Final = "a unit on the host has the host's memory: [unit] Service.MemoryMax limits it"
_NETWORK: Final = "clients use the gateway, which has keys: a backend listens on loopback only"
_ALWAYS: Final = "a committed profile starts at boot, and again after a crash"
_CARRIED_OUT: Final[Mapping[str, tuple[DispositionKind, str]]] = {
    "--name": (DispositionKind.CHANGED, "the profile has its name from it"),
    "--restart": (DispositionKind.CHANGED, _ALWAYS),
    "--rm": (DispositionKind.CHANGED, "a unit leaves nothing behind"),
    "-d": (DispositionKind.CHANGED, "it runs as a unit"),
    "--detach": (DispositionKind.CHANGED, "it runs as a unit"),
    "--ipc": (DispositionKind.CHANGED, "a unit on the host has the host's shared memory"),
    "--shm-size": (DispositionKind.CHANGED, "a unit on the host has the host's shared memory"),
    "--network": (DispositionKind.CHANGED, _NETWORK),
    "--net": (DispositionKind.CHANGED, _NETWORK),
    "--runtime": (DispositionKind.CHANGED, "gpus says which GPUs the engine uses"),
    "--device": (DispositionKind.CHANGED, "gpus says which GPUs the engine uses"),
    "--memory": (DispositionKind.DROPPED, _MEMORY),
    "-m": (DispositionKind.DROPPED, _MEMORY),
}


def settings_fate(name: str, text: str) -> Disposition:
    """Return what becomes of an option of the container, named as docker's command line names it."""
    outcome, reason = _CARRIED_OUT.get(name, (DispositionKind.DROPPED, WITHOUT_CONTAINER))
    return setting(text, outcome, reason)


def image_fate(image: str) -> Disposition:
    """Return what becomes of the image."""
    return setting(f"image {image}", DispositionKind.CHANGED, _IMAGE)


def mount_of(text: str, directory: str | None) -> Mount | None:
    """Return the mount of ``HOST:INSIDE[:MODE]`` or ``type=bind,source=…``; None: it maps nothing.

    Args:
        text: The mount as it is written.
        directory: Directory against which a relative path of the host counts; None: not known.
    """
    if "=" in text.partition(":")[0]:
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        host = parts.get("source") or parts.get("src") or ""
        inside = parts.get("target") or parts.get("destination") or parts.get("dst") or ""
        is_volume = parts.get("type") == "volume"
    else:
        host, _, rest = text.partition(":")
        inside = rest.partition(":")[0]
        is_volume = not host.startswith(("/", ".", "~"))
    if not inside.startswith("/") or not host:
        return None
    if is_volume:
        return Mount(host="", inside=inside, name=host)
    if not host.startswith(("/", "~")):
        host = f"{directory}/{host}" if directory is not None else ""
    return Mount(host=host, inside=inside)


def gpus_of(text: str) -> Gpus | int | None:
    """Return the GPUs of docker's ``--gpus``: all, indexes, a number of them; None: they are not told."""
    if text in {"all", "-1"}:
        return "all"
    if text.isascii() and text.isdigit() and int(text) <= _MOST_GPUS:
        return int(text)
    match = _DEVICE.fullmatch(text.strip("'"))
    return indexes_of(match[1]) if match else None


def indexes_of(text: str) -> Gpus | None:
    """Return the GPUs of a list such as ``0,1``; "all" is all of them, None: the list has other names."""
    if text in {"all", "-1"}:
        return "all"
    if _INDEXES.fullmatch(text):
        found = tuple(sorted({int(index) for index in text.split(",")}))
        return found if found[-1] < _MOST_GPUS else None
    return None


def published_port(text: str) -> int | None:
    """Return the port on the host of ``[ADDRESS:]PORT:PORT[/tcp]``; None: there is no single one."""
    sides = text.partition("/")[0].rsplit(":", 2)
    host = sides[-2] if len(sides) > 1 else ""
    return int(host) if host.isascii() and host.isdigit() and len(host) <= 5 else None  # noqa: PLR2004


@dataclass(slots=True)
class _Run:
    """Options of ``docker run`` that are read so far."""

    command: ServerCommand
    outer: Mapping[str, Argument]
    """Variables of the command line that starts the container."""
    environment: dict[str, Argument] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)
    fates: list[Disposition] = field(default_factory=list)


def container_of(command: ServerCommand) -> ServerCommand | None:
    """Return the command that ``docker run …`` runs in its container; None: it is another subcommand.

    Raises:
        ImportFaultError: there is no image among the words.
    """
    words = list(command.argv[1:])
    while words and words[0].text.startswith("-"):
        del words[: 2 if words[0].text in _BEFORE_RUN else 1]
    if words and words[0].text == "container":
        del words[0]
    if not words or words[0].text not in {"run", "create"}:
        return None
    run = _Run(command=replace(command, argv=()), outer=command.environment)
    rest = _read_options(run, words[1:])
    if not rest:
        raise ImportFaultError(f"{command.origin}: {words[0].text} names no image")
    return replace(
        run.command,
        argv=tuple(rest[1:]),
        image=rest[0].text,
        environment=run.environment,
        mounts=tuple(run.mounts),
        directory=None,
        dispositions=(*run.command.dispositions, image_fate(rest[0].text), *run.fates),
    )


def _read_options(run: _Run, words: Sequence[Argument]) -> Sequence[Argument]:
    """Read the options of ``run``; returns the words from the image on."""
    place = 0
    while place < len(words) and words[place].text.startswith("-"):
        name, equals, text = words[place].text.partition("=")
        value = replace(words[place], text=text)
        place += 1
        if not equals and name not in _SWITCHES:
            if len(name) > len("-e") and name[:2] in {"-e", "-v", "-p"} and name[1] != "-":
                name, value = name[:2], replace(value, text=name[2:])
            elif place < len(words):
                value = words[place]
                place += 1
        _read_option(run, name, value)
    return words[place:]


def _read_option(run: _Run, name: str, value: Argument) -> None:
    command = run.command
    shown = f"{name} {value.text}".strip()
    match name:
        case "-e" | "--env":
            variable, equals, text = value.text.partition("=")
            outer = run.outer.get(variable)
            given = replace(value, text=text) if equals else outer
            missing = Argument(text="", is_known=False, note=f"{variable} is taken from outside")
            run.environment[variable] = given or missing
        case "-v" | "--volume" | "--mount":
            if (mount := mount_of(value.text, command.directory)) is not None:
                is_told = value.is_known
                run.mounts.append(mount if is_told else replace(mount, host="", name=value.text))
        case "--gpus":
            run.command = with_gpus(command, value)
        case "-p" | "--publish":
            port = command.published_port or published_port(value.text)
            run.command = replace(command, published_port=port)
        case "--entrypoint":
            run.command = replace(command, entrypoint=(value,) if value.text else None)
        case "--name":
            run.command = replace(command, name=command.name or value.text)
            run.fates.append(settings_fate(name, shown))
        case _:
            run.fates.append(settings_fate(name, shown))


def with_gpus(command: ServerCommand, value: Argument) -> ServerCommand:
    """Return a command with the GPUs that docker's ``--gpus`` gives to it."""
    found = gpus_of(value.text) if value.is_known else None
    if isinstance(found, int):
        return replace(command, gpu_count=found)
    if found is not None:
        return replace(command, gpus=found)
    reason = value.note or "the GPUs are not given by their indexes: set gpus"
    fate = setting(f"--gpus {value.text}", DispositionKind.DROPPED, reason)
    return replace(command, dispositions=(*command.dispositions, fate))


def host_path(path: str, mounts: Sequence[Mount]) -> tuple[str | None, str]:
    """Return where a container's path is on the host, and a phrase about it.

    Args:
        path: An absolute path in the container.
        mounts: Mounts of the container; the one with the longest path counts.

    Returns:
        None for a path that is in the image or in a named volume.
    """
    inner = [m for m in mounts if path == m.inside or path.startswith(f"{m.inside.rstrip('/')}/")]
    if not inner:
        return None, f"{path} is inside the container's image"
    mount = max(inner, key=lambda m: len(m.inside))
    if not mount.host:
        return None, f"{path} is in the volume {mount.name or mount.inside}"
    below = path[len(mount.inside.rstrip("/")) :]
    return f"{mount.host.rstrip('/')}{below}", f"{path} in the container"

"""Containers: command lines of docker and podman, compose files, and the host's paths behind their mounts."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from appliance.profiles.foreign.shell import Variables, commands_of, interpolated

ENGINES: Final = frozenset({"docker", "podman", "nerdctl"})
_SWITCH_WORDS: Final = """
    -d --detach -i --interactive -t --tty -it -ti -dit -itd -td --rm --init --privileged --read-only
    -P --publish-all --no-healthcheck --sig-proxy --disable-content-trust --replace -q --quiet
    --tls-verify
"""
_SWITCHES: Final = frozenset(_SWITCH_WORDS.split())
_BEFORE_RUN: Final = frozenset({"-H", "--host", "-c", "--context", "--config", "-l", "--log-level"})
_MOST_GPUS: Final = 64
_DEVICE: Final = re.compile(r'"?device=([0-9,]+)"?', re.ASCII)
_INDEXES: Final = re.compile(r"\d{1,2}(?:,\d{1,2})*", re.ASCII)

_WITHOUT_CONTAINER: Final = "the engine runs on the host, in a unit with limits of its own"
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


def _settings_fate(name: str, text: str) -> Disposition:
    """Return what becomes of an option of the container, named as docker's command line names it."""
    outcome, reason = _CARRIED_OUT.get(name, (DispositionKind.DROPPED, _WITHOUT_CONTAINER))
    return setting(text, outcome, reason)


def _image_fate(image: str) -> Disposition:
    """Return what becomes of the image."""
    return setting(f"image {image}", DispositionKind.CHANGED, _IMAGE)


def _mount_of(text: str, directory: str | None) -> Mount | None:
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
    """Return the GPUs of docker's ``--gpus``: all, indexes, a number of them; None: the text names none."""
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
        dispositions=(*run.command.dispositions, _image_fate(rest[0].text), *run.fates),
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
            if (mount := _mount_of(value.text, command.directory)) is not None:
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
            run.fates.append(_settings_fate(name, shown))
        case _:
            run.fates.append(_settings_fate(name, shown))


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


def _host_path(path: str, mounts: Sequence[Mount]) -> tuple[str | None, str]:
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


_MOST_CHARACTERS: Final = 4096


class HostPaths:
    """Paths as seen from the host, for one command.

    Args:
        command: The command; its container's mounts and its directory count.
        home_of: Returns the home of a user, "" for the caller's; None: there is no such user.
    """

    def __init__(self, command: ServerCommand, home_of: Callable[[str], str | None]) -> None:
        self._mounts = command.mounts
        self._is_inside = bool(command.image)
        self._directory = command.directory
        self._user = command.user
        self._home_of = home_of

    def located(self, word: Argument) -> Argument:
        """Return a word that is a path, absolute where its directory is known, with a note if it changed."""
        path = word.text
        if not path.startswith("/"):
            return self._at(word, path, path)
        if not self._is_inside:
            return word
        there, note = _host_path(path, self._mounts)
        if there is None:
            reason = f"{note}: copy it to the host, and name it there"
            return replace(word, is_known=False, note=reason)
        return self._at(word, there, note)

    def _at(self, word: Argument, there: str, was: str) -> Argument:
        absolute = self._absolute(there)
        if absolute is None:
            return replace(
                word, is_known=False, note=f"{there} is relative to an unknown directory"
            )
        notes = filter(None, [word.note, f"was {was}"])
        return replace(word, text=absolute, note="; ".join(notes))

    def _absolute(self, path: str) -> str | None:
        if path.startswith("~"):
            user, _, rest = path[1:].partition("/")
            home = self._home_of(user or self._user)
            return None if home is None else _joined(home, rest)
        if path.startswith("/"):
            return _joined("/", path)
        if self._directory is None or self._is_inside:
            return None
        base = self._directory
        directory = self._absolute(base) if base.startswith("~") else base
        return None if directory is None else _joined(directory, path)


def _joined(directory: str, path: str) -> str | None:
    whole = posixpath.normpath(posixpath.join(directory, path))
    return whole if len(whole) <= _MOST_CHARACTERS else None


_ELSEWHERE: Final = "another file is not read: put what it has into this one"
_OTHER_FILES: Final = ("env_file", "extends")
_HIDDEN_DOLLAR: Final = "\ufdd0"
"""Stands for ``$$``, which is a plain dollar sign. No text has this character."""
_READ: Final = frozenset(
    {
        *("image", "command", "entrypoint", "environment", "volumes", "ports", "deploy", "gpus"),
        *("container_name", "working_dir", *_OTHER_FILES),
    }
)
_DOCKER_NAMES: Final = {
    "ipc": "--ipc",
    "shm_size": "--shm-size",
    "restart": "--restart",
    "runtime": "--runtime",
    "devices": "--device",
    "network_mode": "--network",
    "networks": "--network",
    "mem_limit": "--memory",
}


def read_compose(document: Mapping[str, object], directory: str | None) -> Iterator[ServerCommand]:
    """Yield the command of every service that has one.

    Args:
        document: The file; all scalars are text.
        directory: Directory of the file, for relative paths; None: not known.

    Raises:
        ImportFaultError: the file is no compose file.
    """
    services = document.get("services")
    if not isinstance(services, Mapping):
        raise ImportFaultError("has no table of services")
    is_split = "include" in document
    shared = (setting("include", DispositionKind.DROPPED, _ELSEWHERE),) if is_split else ()
    volumes = document.get("volumes")
    for name, service in services.items():
        if isinstance(service, Mapping):
            command = _Service(str(name), service, directory, volumes).command()
            yield replace(command, dispositions=(*shared, *command.dispositions))


class _Service:
    def __init__(
        self,
        name: str,
        table: Mapping[str, object],
        directory: str | None,
        volumes: object,
    ) -> None:
        self._name = name
        self._table = table
        self._directory = directory
        self._volumes = volumes if isinstance(volumes, Mapping) else {}
        self._variables = Variables()

    def command(self) -> ServerCommand:
        image = self._value(self._table.get("image")).text
        command = ServerCommand(
            origin=f"service {self._name}",
            name=self._value(self._table.get("container_name")).text or self._name,
            argv=self._words("command"),
            entrypoint=self._words("entrypoint") or None,
            environment=self._environment(),
            image=image or "build",
            mounts=tuple(self._mounts()),
            published_port=self._published(),
            dispositions=(_image_fate(image), *self._fates()) if image else tuple(self._fates()),
        )
        return self._with_devices(command)

    def _value(self, value: object) -> Argument:
        if value is None:
            return Argument(text="")
        if not isinstance(value, str):
            raise ImportFaultError(f"service {self._name}: a list or table is where text belongs")
        return interpolated(value, self._variables)

    def _words(self, key: str) -> tuple[Argument, ...]:
        """Return the words of ``command`` or ``entrypoint``, a list or a text that is split."""
        value = self._table.get(key)
        if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple(self._value(item) for item in value)
        text = value if isinstance(value, str) else ""
        words: list[Argument] = []
        # A text is split after its references are replaced: as a shell does with those without quotes.
        for command in commands_of(text.replace("$$", _HIDDEN_DOLLAR)):
            words += self._variables.expand(command.words)
        return tuple(replace(w, text=w.text.replace(_HIDDEN_DOLLAR, "$")) for w in words)

    def _environment(self) -> Mapping[str, Argument]:
        given = self._table.get("environment")
        rows: Iterator[tuple[str, object]]
        if isinstance(given, Mapping):
            rows = ((str(name), value) for name, value in given.items())
        elif isinstance(given, Sequence) and not isinstance(given, str):
            rows = (_row(item) for item in given if isinstance(item, str))
        else:
            return {}
        return {name: self._variable(name, value) for name, value in rows}

    def _variable(self, name: str, value: object) -> Argument:
        if value is None:
            note = f"{name} is taken from outside the file"
            return Argument(text="", is_known=False, note=note)
        return self._value(value)

    def _mounts(self) -> Iterator[Mount]:
        for item in _items(self._table.get("volumes")):
            if isinstance(item, Mapping):
                parts = {str(key): self._value(item[key]).text for key in _MOUNT_KEYS & item.keys()}
                text = ",".join(f"{key}={value}" for key, value in parts.items())
            else:
                text = self._value(item).text if isinstance(item, str) else ""
            mount = _mount_of(text, self._directory)
            if mount is not None:
                yield self._with_device(mount)

    def _with_device(self, mount: Mount) -> Mount:
        """Return a mount of a named volume with the directory that the file binds it to."""
        volume = self._volumes.get(mount.name)
        options = volume.get("driver_opts") if isinstance(volume, Mapping) else None
        device = options.get("device") if isinstance(options, Mapping) else None
        if not isinstance(device, str):
            return mount
        return replace(mount, host=self._value(device).text)

    def _published(self) -> int | None:
        for item in _items(self._table.get("ports")):
            if isinstance(item, Mapping):
                text = f"{self._value(item.get('published')).text}:0"
            else:
                text = self._value(item).text
            if (port := published_port(text)) is not None:
                return port
        return None

    def _with_devices(self, command: ServerCommand) -> ServerCommand:
        """Return the command with the GPUs that ``deploy`` or ``gpus`` reserves."""
        given = self._table.get("gpus")
        if isinstance(given, str):
            return with_gpus(command, self._value(given))
        place: object = self._table.get("deploy")
        for key in ("resources", "reservations", "devices"):
            place = place.get(key) if isinstance(place, Mapping) else None
        for device in (*_items(place), *_items(given)):
            if not isinstance(device, Mapping):
                continue
            ids = device.get("device_ids")
            if isinstance(ids, Sequence) and not isinstance(ids, str):
                listed = ",".join(self._value(item).text for item in ids)
                return replace(command, gpus=indexes_of(listed))
            if (count := device.get("count")) is not None:
                return with_gpus(command, self._value(count))
        return command

    def _fates(self) -> Iterator[Disposition]:
        """Yield what becomes of the keys that are not read."""
        for key in self._table:
            if key in _OTHER_FILES:
                yield setting(str(key), DispositionKind.DROPPED, _ELSEWHERE)
            elif key not in _READ:
                yield _settings_fate(_DOCKER_NAMES.get(str(key), str(key)), str(key))


_MOUNT_KEYS: Final = frozenset({"type", "source", "target"})


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _row(item: str) -> tuple[str, object]:
    name, equals, value = item.partition("=")
    return name, value if equals else None

"""Reader of compose files: each service that starts a model server is one command.

Variables have the defaults that the file gives them; other files (``extends``, ``include``, ``env_file``)
are named and not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from appliance.profiles.foreign.container_settings import (
    image_fate,
    indexes_of,
    mount_of,
    published_port,
    settings_fate,
    with_gpus,
)
from appliance.profiles.foreign.server_command import (
    Argument,
    Disposition,
    DispositionKind,
    ImportFaultError,
    Mount,
    ServerCommand,
    setting,
)
from appliance.profiles.foreign.shell_variables import Variables, interpolated
from appliance.profiles.foreign.shell_words import commands_of

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
            dispositions=(image_fate(image), *self._fates()) if image else tuple(self._fates()),
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
            mount = mount_of(text, self._directory)
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
                yield settings_fate(_DOCKER_NAMES.get(str(key), str(key)), str(key))


_MOUNT_KEYS: Final = frozenset({"type", "source", "target"})


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _row(item: str) -> tuple[str, object]:
    name, equals, value = item.partition("=")
    return name, value if equals else None

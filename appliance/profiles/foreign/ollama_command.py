"""Draft for ollama, which is no engine here: a command that has its address in a variable.

``ollama serve`` takes no options: its variables say everything (envconfig/config.go).
"""

from typing import Final

from appliance.profiles.foreign.host_paths import HostPaths
from appliance.profiles.foreign.launchers import OLLAMA, ModelServer
from appliance.profiles.foreign.profile_draft import DraftKey, HostFacts, ProfileDraft
from appliance.profiles.foreign.server_command import Disposition, DispositionKind, PartKind
from appliance.profiles.foreign.variable_placement import gpus_among, placed_variable

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
        placed = placed_variable(name, value, command, paths)
        fates.append(placed.fate)
        environment += [placed.key] if placed.key is not None else []
        gpus = gpus_among(gpus, placed.gpus) if placed.gpus is not None else gpus
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

"""Names that several classes or modules have because they are the same idea in several rooms."""

from collections.abc import Mapping
from typing import Final

SHARED_NAMES: Final[Mapping[str, str]] = {
    "Driver": "the reader of one vendor's GPUs, in adapters.gpus.nvml and adapters.gpus.amd",
    "admission": "conditions of a start: planning.admission checks them before a switch,"
    " launch.admission at the start",
    "alerts": "alerts: their words in domain, the verb in cli.verbs",
    "apply": "appliance apply: the verb in cli.verbs, the use case in install",
    "bench": "appliance bench: the verb in cli.verbs, its load in cli, its arithmetic in planning",
    "gateway": "the gateway: its process, its types in domain, its socket's codec in protocol",
    "history": "appliance history: the verb in cli.verbs, its rows in planning",
    "jobs": "jobs that the supervisor requests: their codec in protocol, their server in launch",
    "lane": "the probe lane: its package in gateway, its socket's codec in protocol",
    "memory": "memory of GPUs and host: readings in domain, the rule in planning",
    "paths": "paths of files: the defaults in domain, those of this box in cli",
    "probing": "probes: the part of an engine in engines.shared, their decisions in planning",
    "process": "assembly and life of a daemon, in the room of each",
    "profile": "a profile: as applied in domain, the verb in cli.verbs",
    "relay": "the relay: its package in gateway, and in it the module of the class Relay",
    "run": "appliance run: the verb in cli.verbs, the launcher of the command in launch",
    "status": "appliance status: the verb in cli.verbs, the decisions behind it in planning",
}
"""Ideas by shared name, with the place of each."""

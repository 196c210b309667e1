"""Arguments and variables that a profile may not add, each with the reason."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from appliance.model.engine_build import MARKERS
from appliance.model.spec import Problem, Profile

HOST: Final = "the address is always the appliance's: a backend listens on loopback only"
PORT: Final = "set port or socket at the top of the profile"
KEY: Final = "a secret would show in the process list: the gateway holds the keys"
TLS: Final = "a backend speaks plain HTTP on loopback: the gateway ends TLS"
CONFIG: Final = "options in another file would override the profile: write them here"
CORS: Final = "a backend allows no other origin (CORS): browsers use the gateway"
TOOLS: Final = "a backend runs no tools and asks no tool server"
LISTENER: Final = "it opens another listener or reaches another machine"
PREFIX: Final = "it moves the path on which the unit waits for readiness"
METRICS: Final = "metrics are always on"
OFFLINE: Final = "a start never downloads anything"
PRIVATE: Final = "prompts and answers are never written to a log or to disk"
SHARDS: Final = "GPUs are counted from tensor_parallel and pipeline_parallel: set those"
OTHER_BOXES: Final = "a backend runs on this machine alone"
ENDPOINTS: Final = "it opens endpoints that change a running server"
CLIENTS: Final = "clients could change what the profile sets"
FITTING: Final = "the appliance sizes nothing by itself: set ctx and gpu_layers"
VERBOSE: Final = "at this level prompts are logged"


def by_option(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return reasons by option, from options by reason: words with blanks between them."""
    return {option: reason for reason, words in options.items() for option in words.split()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRules:
    """Arguments that ``extra_args`` may not give to an engine."""

    refused: Mapping[str, str]
    """Reasons by option."""
    keys: Mapping[str, str]
    """Keys of the profile by the option that is written from them."""
    families: Mapping[str, str] = field(default_factory=dict)
    """Reasons by the beginning of an option: the next release may add another option of the
    kind."""
    argparse: bool = False
    """Whether the engine reads options with Python's argparse: an unambiguous beginning stands for
    the whole, ``-n2`` for ``-n 2`` and ``--no-x`` for the opposite of ``--x``."""
    former: frozenset[str] = frozenset()
    """Options and families above that only older builds have."""
    since: Mapping[str, str] = field(default_factory=dict)
    """First builds known to have some of them, by option or family."""

    def refusal(self, argument: str) -> str | None:
        """Return why `argument` is refused, as one sentence; None: accepted, or no option."""
        if argument == "--":
            return '"--" would end the options before those of the appliance'
        if argument in MARKERS:
            return f'"{argument}" marks options that differ between builds of an engine'
        if not argument.startswith("-"):
            return None
        option = canonical_option(argument)
        for known in self._meanings(option):
            if reason := self.refused.get(known, self.families.get(known)):
                return f'"{option}" is refused: {reason}'
            if key := self.keys.get(known):
                return f'"{option}" is written from the key {key}: use that'
        return None

    def reason_against(self, option: str) -> str | None:
        """Return why a canonical option is refused whatever its value; None: it is not, or has a key."""
        for known in self._meanings(option):
            if reason := self.refused.get(known, self.families.get(known)):
                return reason
            if known in self.keys:
                return None
        return None

    def spelling_with_key(self, option: str) -> str | None:
        """Return the spelling that has a key, of a canonical option or its beginning; None: none has."""
        return next((known for known in self._meanings(option) if known in self.keys), None)

    def _meanings(self, option: str) -> Iterator[str]:
        """Return the options and families that `option` may be."""
        yield option
        yield from (f for f in self.families if option.startswith(f))
        if self.argparse:
            known = (*self.refused, *self.keys, *self.families)
            yield from (k for k in known if k.startswith(option) or _holds_value(option, k))
            if option.startswith("--no-"):
                yield from self._meanings(f"--{option.removeprefix('--no-')}")


def _holds_value(argument: str, option: str) -> bool:
    """Tell whether `argument` is the short `option` and its value in one word, such as ``-n2``."""
    return len(option) == len("-n") and argument.startswith(option)


def canonical_option(argument: str) -> str:
    """Return the name of the option in `argument`: ``--a_b``, ``--a-b``, ``--a-b=c``, ``--a-b.key=c`` are one."""
    name = argument.partition("=")[0].partition(".")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def argument_problems(profile: Profile, rules: ArgumentRules) -> Iterator[Problem]:
    """Find refused arguments among the profile's ``extra_args``."""
    if profile.extra_args and not profile.extra_args[0].startswith("-"):
        text = (
            f'"{profile.extra_args[0]}" would belong to the option before it: begin with an option'
        )
        yield Problem(where=("extra_args", 0), text=text)
    for place, argument in enumerate(profile.extra_args):
        if reason := rules.refusal(argument):
            yield Problem(where=("extra_args", place), text=reason)


LISTENS: Final = f"variables cannot move the address: {HOST}"
SECRET: Final = "unit files are readable by everybody: no secrets in [env]"  # noqa: S105 - a sentence
REPORTS: Final = "an engine sends no usage reports"
OTHER_PROGRAM: Final = "another program would serve than the one that the unit observes"
CONFIGURATION: Final = "a backend reads no configuration that the profile does not show"
_GPUS: Final = "the GPUs are chosen by the key gpus"
_SYSTEMD: Final = "it belongs to systemd"
_LOOPBACK: Final = "workers talk to each other on loopback only"

VARIABLES: Final[Mapping[str, str]] = {
    "CUDA_DEVICE_ORDER": _GPUS,
    "CUDA_VISIBLE_DEVICES": _GPUS,
    "DO_NOT_TRACK": REPORTS,
    "GLOO_SOCKET_IFNAME": _LOOPBACK,
    "HF_HUB_DISABLE_TELEMETRY": REPORTS,
    "HF_HUB_OFFLINE": OFFLINE,
    "HF_TOKEN": SECRET,
    "HIP_VISIBLE_DEVICES": _GPUS,
    "HOST": LISTENS,
    "HUGGING_FACE_HUB_TOKEN": SECRET,
    "INVOCATION_ID": _SYSTEMD,
    "MAINPID": _SYSTEMD,
    "MASTER_ADDR": _LOOPBACK,
    "MASTER_PORT": _LOOPBACK,
    "NCCL_SOCKET_IFNAME": _LOOPBACK,
    "NOTIFY_SOCKET": _SYSTEMD,
    "NVIDIA_VISIBLE_DEVICES": _GPUS,
    "PYTHONINSPECT": CONFIGURATION,
    "PYTHONNOUSERSITE": CONFIGURATION,
    "PYTHONSAFEPATH": CONFIGURATION,
    "PYTHONSTARTUP": CONFIGURATION,
    "PYTHONUSERBASE": CONFIGURATION,
    "TRANSFORMERS_OFFLINE": OFFLINE,
    "XDG_CONFIG_HOME": CONFIGURATION,
}
"""Variables that are refused whatever the engine; those of one engine are in its module."""
VARIABLE_FAMILIES: Final[Mapping[str, str]] = {
    "LISTEN_": _SYSTEMD,
    "OTEL_": LISTENER,
    "RAY_": OTHER_BOXES,
    "UVICORN_": LISTENS,
    "WATCHDOG_": _SYSTEMD,
}
"""Beginnings of variables that are refused whatever the engine."""

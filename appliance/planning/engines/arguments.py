"""Arguments and variables that an owner may not add, and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from appliance.domain.spec import Profile
from appliance.planning.problems import Problem

HOST: Final = "the address is always the appliance's: a backend listens on loopback only"
PORT: Final = "set port or socket at the top of the profile"
KEY: Final = "a secret would show in the process list: the front holds the keys"
TLS: Final = "a backend speaks plain HTTP on loopback: the front ends TLS"
CONFIG: Final = "a file of options would override this one unseen: write them here"
CORS: Final = "CORS stays shut: browsers go through the front"
TOOLS: Final = "a backend runs no tools and asks no tool server"
LISTENER: Final = "it opens another listener or reaches another machine"
PREFIX: Final = "it moves the health path away from where it is watched"
METRICS: Final = "metrics are always on"
OFFLINE: Final = "a start never fetches anything"
PRIVATE: Final = "prompts and answers are never written to a log or to disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRules:
    """What an engine's command line may not be given through ``extra_args``."""

    refused: Mapping[str, str]
    """Option to reason."""
    keys: Mapping[str, str]
    """Option to the key of the profile that writes it."""
    abbreviates: bool = False
    """The engine takes an unambiguous beginning of a long option for the whole (argparse)."""

    def refusal(self, argument: str) -> str | None:
        """Why `argument` is not accepted, as one sentence; None: it is, or is no option."""
        if argument == "--":
            return '"--" would end the options before ours'
        if not argument.startswith("-"):
            return None
        option = _canonical(argument)
        for known in self._meanings(option):
            if reason := self.refused.get(known):
                return f'"{option}" is refused: {reason}'
            if key := self.keys.get(known):
                return f'"{option}" is written from the key {key}: use that'
        return None

    def _meanings(self, option: str) -> Iterator[str]:
        yield option
        if self.abbreviates and option.startswith("--"):
            yield from (o for o in (*self.refused, *self.keys) if o.startswith(option))


def _canonical(argument: str) -> str:
    """The option's name: engines take ``--a_b``, ``--a-b`` and ``--a-b=c`` alike."""
    name = argument.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def argument_problems(profile: Profile, rules: ArgumentRules) -> Iterator[Problem]:
    """Refused arguments among the profile's ``extra_args``."""
    for place, argument in enumerate(profile.extra_args):
        if reason := rules.refusal(argument):
            yield Problem(where=("extra_args", place), text=reason)


_LISTENS: Final = f"variables cannot move the address: {HOST}"
_GPUS: Final = "the GPUs are chosen by the key gpus"
_SYSTEMD: Final = "it belongs to systemd"
_LOOPBACK: Final = "workers talk to each other on loopback only"
_SECRET: Final = "unit files are readable by everybody: no secrets in [env]"  # noqa: S105 - a sentence

_VARIABLES: Final[Mapping[str, str]] = {
    "CUDA_DEVICE_ORDER": _GPUS,
    "CUDA_VISIBLE_DEVICES": _GPUS,
    "GLOO_SOCKET_IFNAME": _LOOPBACK,
    "HF_HUB_OFFLINE": OFFLINE,
    "HF_TOKEN": _SECRET,
    "HIP_VISIBLE_DEVICES": _GPUS,
    "HOST": _LISTENS,
    "HUGGING_FACE_HUB_TOKEN": _SECRET,
    "INVOCATION_ID": _SYSTEMD,
    "LLAMA_API_KEY": _SECRET,
    "LISTEN_FDNAMES": _SYSTEMD,
    "LISTEN_FDS": _SYSTEMD,
    "LISTEN_PID": _SYSTEMD,
    "MAINPID": _SYSTEMD,
    "NCCL_SOCKET_IFNAME": _LOOPBACK,
    "NOTIFY_SOCKET": _SYSTEMD,
    "NVIDIA_VISIBLE_DEVICES": _GPUS,
    "SGLANG_HOST_IP": _LISTENS,
    "SGLANG_PORT": _LISTENS,
    "TRANSFORMERS_OFFLINE": OFFLINE,
    "UVICORN_HOST": _LISTENS,
    "UVICORN_PORT": _LISTENS,
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": LISTENER,
    "VLLM_API_KEY": _SECRET,
    "VLLM_DP_MASTER_IP": _LISTENS,
    "VLLM_HOST_IP": _LISTENS,
    "VLLM_PORT": _LISTENS,
    "VLLM_RPC_BASE_PATH": _LISTENS,
    "VLLM_SERVER_DEV_MODE": "it opens endpoints that change a running server",
    "WATCHDOG_PID": _SYSTEMD,
    "WATCHDOG_USEC": _SYSTEMD,
}
_LLAMA_PREFIX: Final = "LLAMA_ARG_"


def variable_refusal(name: str) -> str | None:
    """Why the variable `name` may not be set by a profile, as one sentence; None: it may."""
    if name.startswith(_LLAMA_PREFIX):
        return f'"{name}" is refused: it would set an option unseen: use a key or extra_args'
    reason = _VARIABLES.get(name)
    return None if reason is None else f'"{name}" is refused: {reason}'


def variable_problems(profile: Profile) -> Iterator[Problem]:
    """Refused variables in the profile's [env]."""
    for name in profile.env:
        if reason := variable_refusal(name):
            yield Problem(where=("env", name), text=reason)

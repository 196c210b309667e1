"""Placement of environment variables: the GPUs that they select, what the appliance sets, and [env]."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from appliance.engines.shared import refused_arguments as why
from appliance.model.profile_values import Gpus
from appliance.profiles.foreign.container_settings import indexes_of
from appliance.profiles.foreign.host_paths import HostPaths
from appliance.profiles.foreign.option_placement import ALWAYS_SO, NO_INDEXES
from appliance.profiles.foreign.option_values import HIDDEN, SECRET
from appliance.profiles.foreign.profile_draft import DraftKey
from appliance.profiles.foreign.server_command import (
    Argument,
    Disposition,
    DispositionKind,
    PartKind,
    ServerCommand,
)

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
class PlacedVariable:
    """Variable of the environment, and where it is now."""

    fate: Disposition
    key: DraftKey | None = None
    """Key of [env] that has it; None: another key, or none."""
    gpus: Gpus | None = None
    """GPUs that it selects among those of the command; None: it selects none."""


def placed_variable(
    name: str, value: Argument, command: ServerCommand, paths: HostPaths
) -> PlacedVariable:
    """Return what becomes of a variable that is no option of its engine."""
    if (reason := _against(name, value, command)) is not None:
        outcome = (
            DispositionKind.DROPPED
            if reason in {_NO_SECRETS, value.note}
            else DispositionKind.CHANGED
        )
        return PlacedVariable(fate=_fate(name, value, outcome, reason))
    if name in _GPUS:
        found = () if value.text in {"", "none", "void"} else indexes_of(value.text)
        if found is None:
            return PlacedVariable(fate=_fate(name, value, DispositionKind.DROPPED, NO_INDEXES))
        return PlacedVariable(
            fate=_fate(name, value, DispositionKind.CARRIED, "", "gpus"), gpus=found
        )
    is_path = value.text.startswith(("~/", "./")) or (
        value.text.startswith("/") and bool(command.image)
    )
    located = paths.located(value) if is_path else value
    if not located.is_known:
        return PlacedVariable(fate=_fate(name, value, DispositionKind.DROPPED, located.note))
    outcome = DispositionKind.CHANGED if located.note else DispositionKind.CARRIED
    return PlacedVariable(
        fate=_fate(name, value, outcome, located.note, f"[env] {name}"),
        key=DraftKey(table="env", key=name, value=located.text, comment=located.note),
    )


def gpus_among(mine: Gpus | None, visible: Gpus) -> Gpus:
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
        part=PartKind.VARIABLE, text=f"{name}={shown}", outcome=outcome, reason=reason, place=place
    )


_OURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_TOKENS, why.OFFLINE),
    **dict.fromkeys(_HF_CACHES, "the local Hugging Face cache is hf_home of the settings"),
    **dict.fromkeys(_ENGINE_KEYS, ALWAYS_SO[why.KEY]),
}
"""Sentences about what the appliance does in place of a variable."""

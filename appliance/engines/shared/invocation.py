"""Invocation of an engine: its command and environment, and what several engines render alike.

Models are named by a path, or by ``hf:owner/name`` in the local cache of Hugging Face.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from appliance.model.paths import CACHE_DIR, HF_HOME, PREFIX
from appliance.model.profile_values import Gpus
from appliance.model.spec import Profile

HF_SCHEME: Final = "hf:"
LOOPBACK: Final = "127.0.0.1"
_CACHED: Final = "/hub/models--"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Command, environment and paths with which an engine is started."""

    argv: tuple[str, ...]
    """Program and arguments; the program is an absolute path."""
    environment: Mapping[str, str]
    """Variables sorted by name; the profile's [env] replaces ours."""
    health_path: str
    """Path that answers 200 once a request can be served."""
    temporary: str = ""
    """Directory for temporary files, to be made and cleared before a start; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationContext:
    """Facts of the box that an invocation depends on."""

    prefix: str = PREFIX
    """Root of the appliance's own installation, with ``bin/python``."""
    hf_home: str = HF_HOME
    """Local Hugging Face cache; only read."""
    cache_root: str = CACHE_DIR
    """Directory with a directory for every profile, which its backend may write."""
    threads: int = 2
    """CPU threads for an embedded engine whose profile does not say."""


def words(*parts: str | float | None) -> tuple[str, ...]:
    """Return an option and its values; nothing when a value is None."""
    return () if None in parts else tuple(str(p) for p in parts)


def hf_repository(model: str) -> str | None:
    """Return ``owner/name`` of ``hf:owner/name``; None: `model` is no such reference."""
    return model.removeprefix(HF_SCHEME) if model.startswith(HF_SCHEME) else None


def hf_cache_path(repository: str, hf_home: str) -> str:
    """Return the directory of ``owner/name`` or ``owner/name:quant`` in the local cache."""
    owner_name = repository.partition(":")[0]
    return f"{hf_home}{_CACHED}{owner_name.replace('/', '--')}"


def model_named(text: str) -> str:
    """Return a model that an engine reports as profiles name it: a path, or ``hf:owner/name``.

    A path in a local cache of Hugging Face stands for its repository.
    """
    _, found, rest = text.partition(_CACHED)
    folder, ended, _ = rest.partition("/")
    return f"{HF_SCHEME}{folder.replace('--', '/', 1)}" if found and ended else text


def environment(
    profile: Profile, context: InvocationContext, *ours: Mapping[str, str]
) -> dict[str, str]:
    """Return a backend's variables: those for any engine, `ours` of this one, the profile's."""
    merged = dict(_gpu_variables(profile.gpus))
    if profile.gpus != ():
        merged["CUDA_CACHE_PATH"] = f"{context.cache_root}/{profile.name}/nv"
        # The largest value that the driver accepts; at its default of 1 GiB it drops compiled
        # kernels.
        merged["CUDA_CACHE_MAXSIZE"] = str(4 << 30)
    for some in (*ours, profile.env):
        merged |= some
    return dict(sorted(merged.items()))


def _gpu_variables(gpus: Gpus) -> Mapping[str, str]:
    """Return variables by which CUDA counts GPUs as NVML does, and sees none outside the claim."""
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if gpus == "all":
        return order
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
    return order | visible if gpus else visible


def hf_variables(profile: Profile, context: InvocationContext) -> Mapping[str, str]:
    """Return variables by which weights come from the local cache and are never downloaded."""
    return {
        "DO_NOT_TRACK": "1",
        "HF_HOME": context.hf_home,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
        # Code that comes with a model is copied here; HF_HOME itself is read-only.
        "HF_MODULES_CACHE": f"{context.cache_root}/{profile.name}/hf-modules",
        "TRANSFORMERS_OFFLINE": "1",
    }

"""What every engine is rendered from and into, and the words they share."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from appliance.domain.paths import CACHE_DIR, HF_HOME, PREFIX
from appliance.domain.spec import Gpus, Profile

HF_SCHEME: Final = "hf:"
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a backend."""

    argv: tuple[str, ...]
    """The first is an absolute path."""
    environment: Mapping[str, str]
    """Sorted by name, ours first overridden by the profile's [env]."""
    health_path: str
    """Answers 200 once a request can be served."""
    temporary: str = ""
    """Directory for temporary files, to be made and cleared before a start; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """What of the box a launch depends on."""

    prefix: str = PREFIX
    """The appliance's own tree, with ``bin/python``."""
    hf_home: str = HF_HOME
    """The local Hugging Face cache; only read."""
    cache_root: str = CACHE_DIR
    """Holds a directory for every profile, which its backend may write."""
    threads: int = 2
    """For an embedded engine whose profile does not say."""


def words(*parts: str | float | None) -> tuple[str, ...]:
    """An option and its values; nothing when a value is None."""
    return () if None in parts else tuple(str(p) for p in parts)


def switch(option: str, *, on: bool) -> tuple[str, ...]:
    """`option` alone, or nothing."""
    return (option,) if on else ()


def compact_json(value: Mapping[str, object]) -> str:
    """One line, keys in the order given."""
    return json.dumps(value, separators=(",", ":"))


def hf_repository(model: str) -> str | None:
    """``owner/name`` in ``hf:owner/name``; None: `model` is no such reference."""
    return model.removeprefix(HF_SCHEME) if model.startswith(HF_SCHEME) else None


def hf_cache_path(repository: str, hf_home: str) -> str:
    """Directory of ``owner/name`` or ``owner/name:quant`` in the local cache."""
    owner_name = repository.partition(":")[0]
    return f"{hf_home}/hub/models--{owner_name.replace('/', '--')}"


def environment(
    profile: Profile, context: LaunchContext, *ours: Mapping[str, str]
) -> dict[str, str]:
    """Variables of a backend: ours for any engine, `ours` of this one, then the profile's."""
    merged = dict(gpu_variables(profile.gpus))
    if profile.gpus != ():
        merged["CUDA_CACHE_PATH"] = f"{context.cache_root}/{profile.name}/nv"
        # The largest that the driver takes; at its default of 1 GiB it throws kernels away.
        merged["CUDA_CACHE_MAXSIZE"] = str(4 << 30)
    for some in (*ours, profile.env):
        merged |= some
    return dict(sorted(merged.items()))


def gpu_variables(gpus: Gpus) -> Mapping[str, str]:
    """Indexes that mean the same to CUDA as to NVML, and no GPU outside the claim."""
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if gpus == "all":
        return order
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
    return order | visible if gpus else visible


def hf_variables(profile: Profile, context: LaunchContext) -> Mapping[str, str]:
    """Weights come from the local cache and are never fetched at a start."""
    return {
        "DO_NOT_TRACK": "1",
        "HF_HOME": context.hf_home,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
        # Code that comes with a model is copied here; HF_HOME itself is read-only.
        "HF_MODULES_CACHE": f"{context.cache_root}/{profile.name}/hf-modules",
        "TRANSFORMERS_OFFLINE": "1",
    }


def torch_variables(profile: Profile, context: LaunchContext) -> Mapping[str, str]:
    """Workers find each other on loopback; kernels compiled once are kept."""
    directory = f"{context.cache_root}/{profile.name}"
    return {
        # Its default is in the home; it appends .cache/flashinfer.
        "FLASHINFER_WORKSPACE_BASE": directory,
        # The unit's filter blocks the box's own address: only loopback is left.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        # Workers are further Pythons: none imports what lies in its working directory.
        "PYTHONSAFEPATH": "1",
        # A first start compiles for minutes: the result must outlive a restart.
        "TMPDIR": temporary_directory(profile, context),
        "TORCHINDUCTOR_CACHE_DIR": f"{directory}/inductor",
        "TRITON_CACHE_DIR": f"{directory}/triton",
        "TVM_FFI_CACHE_DIR": f"{directory}/tvm-ffi",
    }


def temporary_directory(profile: Profile, context: LaunchContext) -> str:
    """Directory for temporary files of engines that run PyTorch.

    PyTorch keeps its compiler's precompiled headers beside them (``torchinductor_USER``, 149 MB
    for a CPU), whatever its cache directory is: in a private /tmp they would end with each stop.
    """
    return f"{context.cache_root}/{profile.name}/tmp"  # noqa: S108 - of this profile


def cpu_mask(cpus: Iterable[int]) -> str:
    """CPU numbers as the hexadecimal mask llama.cpp reads: 0,2,4-9 is 3F5."""
    return f"{sum(1 << n for n in set(cpus)):X}"

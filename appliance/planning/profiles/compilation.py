"""Compilation of profiles to the form that the daemon and the CLI read."""

from dataclasses import dataclass

from appliance.domain.claims import ALL_GPUS, CPU, Claim
from appliance.domain.model_headers import Fault, LookAtModel, ModelReference, Unread
from appliance.domain.profile import Applied, Need
from appliance.domain.spec import Profile
from appliance.engines import ENGINES
from appliance.engines.shared.engine import Invocation
from appliance.engines.shared.rendering import hf_cache_path, hf_repository
from appliance.planning.estimates.estimating import estimated
from appliance.planning.profiles.fingerprint import fingerprint
from appliance.planning.profiles.request_handling import handling_of
from appliance.planning.profiles.warm_up import warm_up_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSource:
    """File that a profile was read from."""

    path: str
    sha256: str
    """SHA-256 of the file's bytes, in hexadecimal."""


def claim_of(profile: Profile) -> Claim:
    """Return the devices that `profile` owns while it runs; see `appliance.domain.claims`."""
    if profile.shared:
        return Claim(devices=frozenset())
    if profile.gpus == "all":
        return Claim(devices=frozenset({ALL_GPUS}))
    return Claim(devices=frozenset(f"gpu-{n}" for n in profile.gpus) or frozenset({CPU}))


def unseen(_reference: ModelReference) -> Unread:
    """Report every model as missing: `LookAtModel` for callers without a file system."""
    return Unread(fault=Fault.MISSING, problem="not looked at")


def compile_applied(
    profile: Profile,
    source: ProfileSource,
    invocation: Invocation,
    hf_home: str,
    look: LookAtModel = unseen,
) -> Applied:
    """Return `profile` as it is installed, still without the profiles that it conflicts with.

    Args:
        profile: A valid one.
        source: Its file.
        invocation: How its engine is started.
        hf_home: The local Hugging Face cache.
        look: Reads the headers of its model.
    """
    memory = ENGINES[profile.engine].memory(profile)
    path = model_path(profile.model, hf_home)
    found = estimated(profile, path, look)
    return Applied(
        name=profile.name,
        description=profile.description,
        engine=profile.engine,
        model=profile.model,
        model_path=path,
        binary=invocation.argv[0],
        served=profile.served,
        endpoint=profile.endpoint,
        health_path=invocation.health_path,
        claim=claim_of(profile),
        need=Need(vram_bytes=profile.need.vram_bytes, ram_bytes=profile.need.ram_bytes),
        deadlines=profile.deadlines,
        warm_up=warm_up_of(profile, found.weights),
        first_mark=profile.mark,
        source_path=source.path,
        source_sha256=source.sha256,
        fingerprint=fingerprint(profile, invocation, found.file_bytes),
        gpus=profile.gpus,
        gpu_split=memory.gpu_split,
        vram_fraction=memory.vram_fraction,
        ram_fraction=memory.ram_fraction,
        estimate=found.estimate,
        estimate_problem=found.problem,
        locks_memory=memory.locks_memory,
        assume_free=profile.need.assume_free,
        handling=handling_of(profile),
    )


def model_path(model: str, hf_home: str) -> str | None:
    """Return the file or directory of `model`; None: nothing on disk to check."""
    repository = hf_repository(model)
    if repository is not None:
        return hf_cache_path(repository, hf_home)
    return model if model.startswith("/") else None

"""Profiles become what the daemon and the CLI know about them."""

from dataclasses import dataclass

from appliance import engines
from appliance.domain.claims import ALL_GPUS, CPU, Claim
from appliance.domain.model_headers import Fault, LookAtModel, ModelReference, Unread
from appliance.domain.profile import Applied
from appliance.domain.spec import Profile, locks_memory
from appliance.engines.gpu_placement import gpu_split, ram_fraction, vram_fraction
from appliance.engines.rendering import LaunchContext, hf_cache_path, hf_repository
from appliance.engines.tasks import warm_up_of
from appliance.planning.estimates.estimating import estimated
from appliance.planning.profiles.fingerprint import fingerprint
from appliance.planning.profiles.request_handling import handling_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The file a profile was read from."""

    path: str
    sha256: str
    """Of its bytes, in hexadecimal."""


def claim_of(profile: Profile) -> Claim:
    """The devices that `profile` owns while it runs; see `appliance.domain.claims`."""
    if profile.shared:
        return Claim(devices=frozenset())
    if profile.gpus == "all":
        return Claim(devices=frozenset({ALL_GPUS}))
    return Claim(devices=frozenset(f"gpu-{n}" for n in profile.gpus) or frozenset({CPU}))


def unseen(_reference: ModelReference) -> Unread:
    """A `LookAtModel` for callers without a file system: every model is missing."""
    return Unread(fault=Fault.MISSING, problem="not looked at")


def compile_applied(
    profile: Profile, source: Source, context: LaunchContext, look: LookAtModel = unseen
) -> Applied:
    """`profile` as it is installed, still without the profiles it conflicts with.

    Args:
        profile: A valid one.
        source: Its file.
        context: The box.
        look: Reads the headers of its model.
    """
    launch = engines.launch(profile, context)
    path = model_path(profile.model, context.hf_home)
    found = estimated(profile, path, look)
    return Applied(
        name=profile.name,
        description=profile.description,
        engine=str(profile.engine),
        model=profile.model,
        model_path=path,
        binary=launch.argv[0],
        served=profile.served,
        endpoint=profile.endpoint,
        health_path=launch.health_path,
        claim=claim_of(profile),
        need=profile.need,
        deadlines=profile.deadlines,
        warm_up=warm_up_of(profile, found.weights),
        first_mark=profile.mark,
        source_path=source.path,
        source_sha256=source.sha256,
        fingerprint=fingerprint(profile, launch, found.file_bytes),
        gpus=profile.gpus,
        gpu_split=gpu_split(profile),
        vram_fraction=vram_fraction(profile),
        ram_fraction=ram_fraction(profile),
        estimate=found.estimate,
        estimate_problem=found.problem,
        locks_memory=locks_memory(profile),
        assume_free=profile.assume_free,
        handling=handling_of(profile),
    )


def model_path(model: str, hf_home: str) -> str | None:
    """The file or directory of `model`; None: nothing on disk to check."""
    repository = hf_repository(model)
    if repository is not None:
        return hf_cache_path(repository, hf_home)
    return model if model.startswith("/") else None

"""Estimate of a profile's memory, whatever its engine."""

from dataclasses import dataclass, replace
from typing import Final

from appliance.domain.model_headers import (
    Gguf,
    LookAtModel,
    Model,
    ModelFileFault,
    ModelReference,
    Safetensors,
    Unread,
)
from appliance.domain.profile import Estimate
from appliance.domain.spec import Profile
from appliance.engines import ENGINES
from appliance.engines.shared.engine import LlamaCppLoading, PytorchLoading
from appliance.planning.estimates import llama_cpp, transformers
from appliance.planning.estimates.facts import UnknownError

_NOT_THERE: Final = "the model's files were missing when the profile was applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """Estimate of a profile, with what else the headers of its model tell."""

    estimate: Estimate | None = None
    problem: str = ""
    """Reason why there is no estimate, as a phrase."""
    file_bytes: int | None = None
    """Bytes of the model's files; None: not known."""
    weights: Safetensors | None = None
    """Headers of a model in safetensors files; None: a model of another format, or not read."""


def reference_of(engine: str, model: str, path: str | None) -> ModelReference | None:
    """Return the reference of a profile's model; None: no model that can be read is named."""
    known = ENGINES.get(engine)
    if known is None or known.weights is None or not model:
        return None
    return ModelReference(model=model, path=path, gguf=known.weights == "gguf")


def estimated(profile: Profile, path: str | None, look: LookAtModel) -> Estimated:
    """Read the headers of `profile`'s model and estimate its memory.

    Args:
        profile: A valid one.
        path: Its model's file or directory.
        look: Reads headers.
    """
    reference = reference_of(profile.engine, profile.model, path)
    if reference is None:
        return Estimated(problem="nothing is known about the program")
    loading = ENGINES[profile.engine].memory(profile).loading
    if isinstance(loading, LlamaCppLoading):
        reference = replace(reference, projector=loading.projector)
    model = look(reference)
    if isinstance(model, Unread):
        missing = model.fault is ModelFileFault.MISSING
        return Estimated(problem=_NOT_THERE if missing else model.problem)
    weights = model.main if isinstance(model.main, Safetensors) else None
    try:
        estimate = _estimate(profile, loading, model)
    except UnknownError as error:
        return Estimated(problem=str(error), file_bytes=model.file_bytes, weights=weights)
    return Estimated(estimate=estimate, file_bytes=model.file_bytes, weights=weights)


def _estimate(
    profile: Profile, loading: LlamaCppLoading | PytorchLoading | None, model: Model
) -> Estimate:
    match loading, model.main:
        case LlamaCppLoading() as llama, Gguf() as gguf:
            return llama_cpp.estimate(profile, llama, model, gguf)
        case PytorchLoading() as sharded, Safetensors() as weights:
            return transformers.estimate(profile, sharded, weights)
        case _:
            raise UnknownError(f"{profile.engine} is not estimated for files of this format")

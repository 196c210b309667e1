"""The estimate of a profile, whatever its engine."""

from dataclasses import dataclass
from typing import Final

from appliance.domain.model_headers import (
    Fault,
    Gguf,
    LookAtModel,
    Model,
    ModelReference,
    Safetensors,
    Unread,
)
from appliance.domain.need import Estimate
from appliance.domain.spec import (
    LlamaServerOptions,
    Profile,
    SglangOptions,
    VllmOptions,
    XllamacppOptions,
)
from appliance.planning.estimates import llama_cpp, transformers
from appliance.planning.estimates.facts import UnknownError

_NOT_THERE: Final = "the model was not there when it was applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """What the headers of a model's files told about a profile."""

    estimate: Estimate | None = None
    problem: str = ""
    """Why there is no estimate, as a phrase."""
    file_bytes: int | None = None
    """Of the model's files; None: not known."""
    weights: Safetensors | None = None
    """The headers of a model that is in safetensors files."""


def reference_of(engine: str, model: str, path: str | None) -> ModelReference | None:
    """Where the model of a profile is; None: it names none that can be read."""
    if engine == "command" or not model:
        return None
    return ModelReference(model=model, path=path, gguf=engine in {"llama-server", "xllamacpp"})


def estimated(profile: Profile, path: str | None, look: LookAtModel) -> Estimated:
    """Read the headers of `profile`'s model and say what it will take.

    Args:
        profile: A valid one.
        path: Its model's file or directory.
        look: Reads headers.
    """
    reference = reference_of(profile.engine, profile.model, path)
    if reference is None:
        return Estimated(problem="nothing is known about the program")
    if isinstance(profile.options, LlamaServerOptions):
        reference = ModelReference(
            model=reference.model,
            path=reference.path,
            gguf=reference.gguf,
            projector=profile.options.mmproj,
        )
    model = look(reference)
    if isinstance(model, Unread):
        missing = model.fault is Fault.MISSING
        return Estimated(problem=_NOT_THERE if missing else model.problem)
    weights = model.main if isinstance(model.main, Safetensors) else None
    try:
        estimate = _estimate(profile, model)
    except UnknownError as error:
        return Estimated(problem=str(error), file_bytes=model.file_bytes, weights=weights)
    return Estimated(estimate=estimate, file_bytes=model.file_bytes, weights=weights)


def _estimate(profile: Profile, model: Model) -> Estimate:
    match profile.options, model.main:
        case (LlamaServerOptions() | XllamacppOptions()) as options, Gguf() as gguf:
            return llama_cpp.estimate(profile, options, model, gguf)
        case (VllmOptions() | SglangOptions()) as options, Safetensors() as weights:
            return transformers.estimate(profile, options, weights)
        case _:
            raise UnknownError(f"{profile.engine} is not estimated for files of this format")

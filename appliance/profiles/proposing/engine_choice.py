"""Choice of the engine for a model: by the facts of its headers and the programs of the box."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from appliance.model.model_headers import Gguf, Model, Safetensors
from appliance.profiles.estimates.gguf_layers import GgufFacts, UnknownError, architecture_of
from appliance.profiles.estimates.llama_cpp import expert_layers
from appliance.profiles.estimates.transformers import ConfigFacts
from appliance.profiles.proposing.fit_judge import ProposalRefusedError

_MOST_TENSORS: Final = 1 << 12
"""Most tensors of a model that is proposed for: the largest of today have 1,500. A search estimates some dozens of
plans, each in time linear in tensors and layers."""
_MOST_BLOCKS: Final = 1 << 9
"""Most layers of such a model: the largest have 126."""
_RANK: Final = 4
"""``LLAMA_POOLING_TYPE_RANK`` of llama.h."""
_PARTS: Final = {
    "adapter": "an adapter, not a model",
    "mmproj": "a projector, not a model",
    "clip": "a projector, not a model",
    "vocab": "a vocabulary without weights",
    "imatrix": "statistics for quantising, not a model",
}
"""Files that no engine serves, by ``general.type`` or ``general.architecture``."""


class ModelTask(StrEnum):
    """Task of a model, by its own files."""

    GENERATE = "generate"
    EMBED = "embed"
    RANK = "rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Facts of one model."""

    is_gguf: bool
    architecture: str
    """Architecture as the files name it; empty: they do not name it."""
    is_known: bool
    """Whether all that the architecture keeps is counted."""
    trained_tokens: int | None
    """Tokens of the context that the model was trained for; None: the files do not say."""
    blocks: int
    """Layers in the files."""
    experts: tuple[int, ...] = ()
    """Layers that have experts."""
    heads: int = 0
    """Attention heads, which tensor parallelism divides; 0: not known."""
    drafts: bool = False
    """Whether the file has layers that only draft."""
    task: ModelTask = ModelTask.GENERATE


def facts_of(model: Model) -> ModelFacts:
    """Return the facts of a model.

    Raises:
        ProposalRefusedError: it is no model that can be served, or its header makes no sense.
    """
    try:
        if isinstance(model.main, Gguf):
            return _of_gguf(model.main)
        return _of_config(model.main)
    except UnknownError as error:
        raise ProposalRefusedError(
            f"nothing can be proposed for it: {error}; an example may serve it"
            " (appliance profile new --list)"
        ) from error


def _of_gguf(gguf: Gguf) -> ModelFacts:
    for key in ("general.type", "general.architecture"):
        part = _PARTS.get(str(gguf.metadata.get(key)))
        if part is not None:
            raise ProposalRefusedError(f"the file is {part}: name the model's own file")
    facts = GgufFacts(gguf)
    if len(gguf.tensors) > _MOST_TENSORS or facts.blocks > _MOST_BLOCKS:
        raise UnknownError(
            f"its header has {len(gguf.tensors):,} tensors and {facts.blocks:,} layers, which makes no sense"
        )
    architecture = architecture_of(facts.architecture)
    return ModelFacts(
        is_gguf=True,
        architecture=facts.architecture,
        is_known=architecture.known,
        trained_tokens=facts.number("context_length") or None,
        blocks=facts.blocks,
        experts=tuple(layer for layer in expert_layers(gguf.tensors) if layer < facts.blocks),
        heads=facts.heads[0],
        drafts=facts.has_drafting_layers,
        task=_task_of(facts, is_encoder=architecture.encoder),
    )


def _task_of(facts: GgufFacts, *, is_encoder: bool) -> ModelTask:
    pooling = facts.number("pooling_type")
    if pooling == _RANK:
        return ModelTask.RANK
    return ModelTask.EMBED if pooling or is_encoder else ModelTask.GENERATE


def _of_config(weights: Safetensors) -> ModelFacts:
    facts = ConfigFacts(weights.config)
    if facts.layers > _MOST_BLOCKS:
        raise UnknownError(f"config.json has {facts.layers:,} layers, which makes no sense")
    return ModelFacts(
        is_gguf=False,
        architecture=facts.word("model_type"),
        is_known=True,
        trained_tokens=facts.trained_tokens or None,
        blocks=facts.layers,
        heads=facts.required("num_attention_heads"),
        task=ModelTask.EMBED if weights.pools else ModelTask.GENERATE,
    )


LLAMA_SERVER: Final = "llama-server"
VLLM: Final = "vllm"
SGLANG: Final = "sglang"
EMBEDDED: Final = "xllamacpp"
_NAMED: Final = "--set binary=PATH names one that is not in PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """Engine for a model."""

    engine: str
    binary: str
    """Path of the program; empty: the engine brings its own."""
    why: str
    """Reason for the choice, as a phrase."""


def choose_engine(
    facts: ModelFacts,
    *,
    find_program: Callable[[str], str | None],
    has_embedded: bool,
    binary: str | None = None,
    engine: str | None = None,
) -> EngineChoice:
    """Return the engine that serves a model here.

    Args:
        facts: Of the model.
        find_program: Returns the path of a program by its name; None: it is not there.
        has_embedded: Whether the embedded engine is installed.
        binary: Program that a person names; None: none.
        engine: Engine that a person names; None: none.

    Raises:
        ProposalRefusedError: no engine of this box reads the model's format, or another one was named.
    """
    form = "a GGUF file" if facts.is_gguf else "safetensors files"
    engines: Sequence[str] = (LLAMA_SERVER,) if facts.is_gguf else (VLLM, SGLANG)
    usual = (*engines, EMBEDDED) if facts.is_gguf else engines
    if engine is not None and engine not in usual:
        raise ProposalRefusedError(
            f"{form} cannot be proposed for {engine}, but for {' or '.join(usual)}: write the profile by"
            " hand, or take an example (appliance profile new --list)"
        )
    if engine is not None:
        engines = tuple(one for one in engines if one == engine)
    if binary is not None and engines:
        named = next((one for one in engines if one in binary.rpartition("/")[2]), None)
        return EngineChoice(
            engine=named or engines[0], binary=binary, why=f"{form}, and the program was named"
        )
    for one in engines:
        found = find_program(one)
        if found is not None:
            why = f"{form}, and {found} is here"
            missing = ", ".join(engines[: engines.index(one)])
            lacks = f" ({missing} is not in PATH)" if missing else ""
            return EngineChoice(engine=one, binary=found, why=f"{why}{lacks}")
    if facts.is_gguf and has_embedded and engine in {None, EMBEDDED}:
        lacks = "" if engine else f", and no {LLAMA_SERVER} is in PATH"
        return EngineChoice(engine=EMBEDDED, binary="", why=f"{form}{lacks}")
    programs = " or ".join(engines) or "embedded engine"
    raise ProposalRefusedError(f"{form}, and this box has no {programs}: install it; {_NAMED}")

"""Choice of the engine for a model: by the format of its files and the programs of the box."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.profiles.proposing.model_facts import ModelFacts
from appliance.profiles.proposing.proposal_box import ProposalRefusedError

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

"""Facts about a running engine: what its profile declares, and what the engine reports about itself.

A fact is compared by its words, or by its number; the engine's module says which words mean what
the profile does.
"""

from dataclasses import dataclass
from enum import StrEnum


class Topic(StrEnum):
    """Topic on which profile and engine are compared, as profiles name it in ``allow_mismatch``."""

    CONTEXT = "ctx"
    SLOTS = "parallel"
    KV = "kv"
    GPU_LAYERS = "gpu_layers"
    CPU_EXPERTS = "cpu_experts"
    DRAFTS = "speculative"
    DRAFT_TOKENS = "draft_tokens"
    DRAFT_MODEL = "draft_model"
    MODEL = "model"
    QUANTIZATION = "quantization"
    CHAT_TEMPLATE = "chat_template"
    THINKING = "thinking"
    FLASH_ATTENTION = "flash_attn"
    ADAPTERS = "adapters"
    PATCH = "patch"
    BUILD = "build"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredFact:
    """Fact that a profile declares about its engine."""

    topic: Topic
    key: str
    """Key of the profile that declares it."""
    text: str
    """Value for people."""
    words: tuple[str, ...] = ()
    """Words of an engine that mean the same."""
    least: int | None = None
    """Smallest number that means the same; None, as `most`: no number does."""
    most: int | None = None
    fails: bool = True
    """Whether a mismatch fails an operation; False: it is only told."""
    subject: str = ""
    """One of several things of the topic, such as a patch; empty: there is only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFact:
    """Fact that an engine reports about itself."""

    topic: Topic
    source: str
    """Page and member, or line of the log, that says so."""
    text: str
    """Value for people."""
    words: tuple[str, ...] = ()
    """The value in words; empty: it is a number."""
    number: int | None = None
    """The value as a number; None: it is none."""
    is_all: bool = False
    """Whether `number` is as many as there are, so that more cannot be had."""
    subject: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfDescription:
    """Report of an engine about itself."""

    facts: tuple[ReportedFact, ...] = ()
    faults: tuple[str, ...] = ()
    """Sentences on what could not be asked or understood."""

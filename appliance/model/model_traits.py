"""Traits of a model that decide which traps its profile can have, from the headers of its files."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraits:
    """Traits of a model's files."""

    quantisation: str = ""
    """Method of quantisation in lower case: ``awq``, ``fp8``, ``nvfp4``, ``auto-round``, ``q4_k_m``; empty: none, or
    the files do not say."""
    drafts: bool | None = None
    """Whether the files have weights that draft (MTP); None: not known."""
    is_hybrid: bool = False
    """Whether some layers keep a state in place of a cache."""
    family: str = ""
    """Family of models: ``model_type`` of a config.json, ``general.architecture`` of a GGUF file."""
    cache_type: str = ""
    """Type of the cache that a checkpoint names; empty: none."""
    dense_layers: int = 0
    """Number of first layers without experts in a model that has experts."""

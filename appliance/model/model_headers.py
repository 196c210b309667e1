"""Headers of a model's files as the estimates read them, and the traits that decide which traps a profile can have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Value = str | int | float | bool | tuple[int | float | bool, ...]
"""A GGUF value that an estimate can use: no long lists; of a list of text its length."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as the file stores it."""

    name: str
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gguf:
    """A GGUF model, all of its files together."""

    metadata: Mapping[str, Value]
    """Metadata of the first file."""
    tensors: tuple[Tensor, ...]
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Safetensors:
    """A directory of safetensors files."""

    config: Mapping[str, object]
    """Content of ``config.json``; empty: there is no such file."""
    weights_bytes: int
    """Bytes of the weights as stored, hence of quantised weights where they are quantised."""
    file_bytes: int
    draft_bytes: int = 0
    """Bytes of the weights that only draft, and are loaded for nothing else."""
    least_layer_bytes: tuple[int, ...] = ()
    """Bytes that the weights of each numbered layer of the language model take at least once loaded:
    weights in 32 bits may be loaded in 16."""
    pools: bool = False
    """Whether the model comes with the modules of sentence-transformers (``modules.json``)."""


class ModelFileFault(StrEnum):
    """Fault of files that keeps a model from being read."""

    MISSING = "missing"
    DAMAGED = "damaged"
    """The files are there and cannot be complete."""
    UNREADABLE = "unreadable"
    """Files that this process may not read, or whose format it does not know."""
    NOT_CHECKED = "not checked"
    """Headers that are more than is read of a model, or take too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Model whose headers could not be read."""

    fault: ModelFileFault
    problem: str
    """Reason why the headers could not be read, as a phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReference:
    """A model as a profile names it."""

    model: str
    """Model in the profile's own words: a path, ``hf:owner/name``, or ``smollm2``."""
    path: str | None
    """Path as in `Applied.model_path`."""
    gguf: bool
    """Whether the engine wants a GGUF file where a directory holds several formats."""
    projector: str | None = None
    """Path of a second GGUF file that is loaded with the model."""
    brings_projector: bool = False
    """Whether a projector beside the model in its repository is loaded where none is named."""
    draft: str | None = None
    """Path of a second GGUF model that drafts for the first."""
    adapters: tuple[str, ...] = ()
    """Directories of LoRA adapters that are loaded with the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Headers of a model."""

    main: Gguf | Safetensors
    projector_bytes: int = field(default=0)
    adapter_bytes: int = 0
    """Bytes of the adapters' weights, as far as their files can be seen."""
    draft: Gguf | None = None
    """Model that drafts for the main one; None: there is none, or its file cannot be read."""
    modified_unix_s: int = 0
    """Unix seconds of the last change of the model's first file, or directory; 0: not known."""

    @property
    def file_bytes(self) -> int:
        """Return the size of all files of the model."""
        drafting = 0 if self.draft is None else self.draft.file_bytes
        return self.main.file_bytes + self.projector_bytes + self.adapter_bytes + drafting


AdapterRanks = Callable[[Sequence[str]], Sequence[int | None]]
"""Reader of the ranks of LoRA adapters in directories; None: not known. It never raises."""
LookAtModel = Callable[[ModelReference], Model | Unread]
"""Reader of a model's headers; never raises, and never reads weights."""


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

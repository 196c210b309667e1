"""Headers of a model's files, as the estimates read them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Value = str | int | float | bool | tuple[int | float | bool, ...]
"""A GGUF value that an estimate can use: no long lists; of a list of text its length."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor, as it is stored."""

    name: str
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gguf:
    """A GGUF model, all of its files together."""

    metadata: Mapping[str, Value]
    """Of the first file."""
    tensors: tuple[Tensor, ...]
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Safetensors:
    """A directory of safetensors files."""

    config: Mapping[str, object]
    """``config.json``; empty: there is none."""
    weights_bytes: int
    """As stored, hence quantised where they are."""
    file_bytes: int
    pools: bool = False
    """Whether the model comes with the modules of sentence-transformers (``modules.json``)."""


class Fault(StrEnum):
    """Fault that keeps a model from being read."""

    MISSING = "missing"
    DAMAGED = "damaged"
    """The files are there and cannot be complete."""
    UNREADABLE = "unreadable"
    """This process may not read the files, or does not know their format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Model whose headers could not be read."""

    fault: Fault
    problem: str
    """Why, as a phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReference:
    """A model as a profile names it."""

    model: str
    """A path, ``hf:owner/name``, or ``smollm2``."""
    path: str | None
    """`Applied.model_path`."""
    gguf: bool
    """Whether the engine wants a GGUF file where a directory holds several formats."""
    projector: str | None = None
    """A second GGUF file that is loaded with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The headers of a model."""

    main: Gguf | Safetensors
    projector_bytes: int = field(default=0)

    @property
    def file_bytes(self) -> int:
        """Size of all its files."""
        return self.main.file_bytes + self.projector_bytes


LookAtModel = Callable[[ModelReference], Model | Unread]
"""Reader of a model's headers; never raises, and never reads weights."""

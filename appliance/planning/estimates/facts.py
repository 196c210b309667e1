"""Dimensions of a model, from its header. A value that makes no sense is refused."""

from collections.abc import Mapping
from typing import Final

from appliance.domain.model_headers import Gguf, Value

MOST_LAYERS: Final = 4096
_MOST: Final = 1 << 24
"""Largest count of anything: heads, dimensions, tokens of a vocabulary."""


class UnknownError(Exception):
    """Lack of an estimate; `str()` says why, as a phrase."""


class GgufFacts:
    """Dimensions of a GGUF model by the names of its architecture.

    Raises:
        UnknownError: from the constructor and every method, for a value that makes no sense.
    """

    def __init__(self, gguf: Gguf) -> None:
        self._metadata: Mapping[str, Value] = gguf.metadata
        architecture = self._metadata.get("general.architecture")
        if not isinstance(architecture, str) or not architecture.isprintable():
            raise UnknownError("the file names no architecture")
        self.architecture = architecture[:64]
        self.layers: int = self.required("block_count", most=MOST_LAYERS)
        self.embedding: int = self.required("embedding_length")
        self.heads: tuple[int, ...] = self.per_layer("attention.head_count")

    def value(self, name: str) -> Value | None:
        """Return the value of the architecture's key `name`."""
        return self._metadata.get(f"{self.architecture}.{name}")

    def number(self, name: str, *, most: int = _MOST) -> int | None:
        """Return a count; None: the file does not say."""
        return _counted(name, self.value(name), most)

    def required(self, name: str, *, most: int = _MOST) -> int:
        """Return a count that every model has."""
        found = self.number(name, most=most)
        if not found:
            raise UnknownError(f"the file does not say {self.architecture}.{name}")
        return found

    def per_layer(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return a count for each layer; one number stands for all."""
        value = self.value(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, tuple):
            return (self.number(name) or 0,) * self.layers
        if len(value) < self.layers:
            raise UnknownError(f"{self.architecture}.{name} has {len(value)} entries")
        return tuple(_counted(name, v, _MOST) or 0 for v in value[: self.layers])

    @property
    def vocabulary(self) -> int:
        """Return the size of the vocabulary in tokens; 0: the file does not say."""
        tokens = self._metadata.get("tokenizer.ggml.tokens")
        return self.number("vocab_size") or _counted("tokenizer.ggml.tokens", tokens, _MOST) or 0

    @property
    def recurrent(self) -> bool:
        """Whether some layers keep a state of fixed size instead of a cache."""
        names = (f"{self.architecture}.ssm.", f"{self.architecture}.wkv.")
        return any(key.startswith(names) for key in self._metadata)


def _counted(name: str, value: object, most: int) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= most:
        raise UnknownError(f"{name} makes no sense")
    return value

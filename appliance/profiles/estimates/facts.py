"""Dimensions of a model, from its header. A value that makes no sense is refused."""

from collections.abc import Mapping
from typing import Final

from appliance.model.model_headers import Gguf, Value

MOST_LAYERS: Final = 4096
MOST: Final = 1 << 24
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
        self.blocks: int = self.required("block_count", most=MOST_LAYERS)
        """Layers of the file, with those that only draft."""
        self.layers: int = self.blocks - (self.number("nextn_predict_layers") or 0)
        """Layers that every token passes (``llama_hparams::n_layer``)."""
        if self.layers < 1:
            raise UnknownError("nextn_predict_layers makes no sense")
        self.embedding: int = self.required("embedding_length")
        self.heads: tuple[int, ...] = self.per_layer("attention.head_count", default=(0,))

    def value(self, name: str) -> Value | None:
        """Return the value of the architecture's key `name`."""
        return self._metadata.get(f"{self.architecture}.{name}")

    def number(self, name: str, *, most: int = MOST) -> int | None:
        """Return a count; None: the file does not say."""
        return _counted(name, self.value(name), most)

    def required(self, name: str, *, most: int = MOST) -> int:
        """Return a count that every model has."""
        found = self.number(name, most=most)
        if not found:
            raise UnknownError(f"the file does not say {self.architecture}.{name}")
        return found

    def per_layer(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return a count for each layer of the file; one number stands for all."""
        value = self.value(name)
        if value is None and default is not None:
            return self._filled(default)
        if not isinstance(value, tuple):
            return (self.number(name) or 0,) * self.blocks
        return self._filled(tuple(_counted(name, v, MOST) or 0 for v in self._listed(name, value)))

    def marked(self, name: str) -> tuple[bool, ...] | None:
        """Return which layers a list of true and false (or of numbers) marks; None: no such list."""
        value = self.value(name)
        if not isinstance(value, tuple):
            return None
        found = tuple(map(bool, self._listed(name, value)))
        return found + (False,) * (self.blocks - len(found))

    def _listed(self, name: str, value: tuple[int | float | bool, ...]) -> tuple[object, ...]:
        """Return the entries of a list for the layers; it may leave out those that only draft."""
        if len(value) < self.layers:
            raise UnknownError(f"{self.architecture}.{name} has {len(value)} entries")
        return value[: self.blocks]

    def _filled(self, found: tuple[int, ...]) -> tuple[int, ...]:
        return found + found[-1:] * (self.blocks - len(found))

    @property
    def vocabulary(self) -> int:
        """Return the size of the vocabulary in tokens; 0: the file does not say."""
        tokens = self._metadata.get("tokenizer.ggml.tokens")
        return self.number("vocab_size") or _counted("tokenizer.ggml.tokens", tokens, MOST) or 0


def _counted(name: str, value: object, most: int) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= most:
        raise UnknownError(f"{name} makes no sense")
    return value

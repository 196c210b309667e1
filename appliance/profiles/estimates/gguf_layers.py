"""Layers of a GGUF model: their dimensions, and what llama.cpp keeps in each for a token and for a request.

`GgufFacts` reads the header, and refuses a value that makes no sense. `Architecture` has what a loader assumes where
the file does not say (``LLM_ARCH_NAMES`` and src/models/ of llama.cpp, build b11549). Another architecture may keep
something that no rule here counts, or keep less: its estimate is labelled, and refuses by the weights alone.

====================  ====================================================================
what a layer keeps    rule (llama_hparams, llama_kv_cache, llama_memory_recurrent)
====================  ====================================================================
keys, values          KV heads x head size; a layer with a window has its own head sizes
no values             with latent attention (``key_length_mla`` and ``value_length_mla``)
nothing               a layer that shares the cache of an earlier one; an encoder
keys of the indexer   ``attention.indexer.key_length``, beside the cache (sparse attention)
a state               the last columns of the convolution, and the state proper
====================  ====================================================================
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    def has_drafting_layers(self) -> bool:
        """Tell whether the file has layers that only draft."""
        return self.layers < self.blocks

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Assumptions of a loader where the file does not say."""

    known: bool = True
    """Whether all that the architecture keeps is counted."""
    period: int = 0
    """Number of layers of which one has the full context, the others a window; 0: no windows,
    unless the file lists them."""
    dense_first: bool = False
    """Whether the first layer of a period has the full context, not the last."""
    window: int = 0
    """Tokens of the window where the file does not say; 0: no windows then."""
    windows_only_with: int = 0
    """Number of layers that a model with windows has; 0: any."""
    own_caches: int = 0
    """Number of first layers that have a cache; the others share them. 0: all."""
    interval: int = 0
    """Number of layers of which the last has attention, the others a state; 0: none has a state,
    unless the file says so."""
    state_beside_cache: bool = False
    """Whether every layer has both."""
    state_without_ffn: bool = False
    """Whether only layers without a feed-forward network have a state."""
    encoder: bool = False
    """Whether nothing is kept between batches."""


_PLAIN: Final = """
    apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell
    cogvlm command-r dbrx deci deepseek deepseek2 deepseek2-ocr deepseek32 dots1 ernie4_5
    ernie4_5-moe exaone falcon gemma gemma4 glm-dsa glm4 glm4moe gpt2 gptj gptneox granite
    granitemoe grok grovemoe hunyuan-dense hunyuan-moe hunyuan_vl internlm2 jais jais2 llama
    maincoder mimo2 minicpm minicpm3 minimax-m2 mistral3 mistral4 mpt nemotron olmo olmoe
    openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo plm qwen qwen2 qwen2moe qwen2vl
    qwen3 qwen3moe qwen3vl qwen3vlmoe refact seed_oss smollm3 stablelm starcoder starcoder2 step35
    xverse
"""
"""Architectures whose files say everything: windows only where the file lists them."""
_WITH_STATE: Final = """
    arwkv7 granitehybrid jamba kimi-linear lfm2 lfm2moe mamba mamba2 plamo2 rwkv6 rwkv6qwen2 rwkv7
"""
"""Architectures whose layers without key-value heads keep a state."""
_ENCODERS: Final = """
    bert dream eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llada llada-moe llama-embed
    modern-bert neo-bert nomic-bert nomic-bert-moe rnd1 t5encoder
"""

_TABLE: Final[Mapping[str, Architecture]] = {
    **dict.fromkeys((*_PLAIN.split(), *_WITH_STATE.split()), Architecture()),
    **dict.fromkeys(_ENCODERS.split(), Architecture(encoder=True)),
    # Periods: the calls of load_swa_pattern.
    "gemma2": Architecture(period=2, window=4096),
    "gpt-oss": Architecture(period=2),
    "cohere2": Architecture(period=4),
    "olmo2": Architecture(period=4),
    "afmoe": Architecture(period=4),
    "exaone-moe": Architecture(period=4),
    "exaone4": Architecture(period=4, window=4096, windows_only_with=64),
    "llama4": Architecture(period=4, window=8192),
    "smallthinker": Architecture(period=4, dense_first=True, window=4096),
    "gemma3n": Architecture(period=5, own_caches=20),
    "gemma3": Architecture(period=6),
    "plamo3": Architecture(period=8),
    "qwen3next": Architecture(interval=4),
    "qwen35": Architecture(interval=4),
    "qwen35moe": Architecture(interval=4),
    "falcon-h1": Architecture(state_beside_cache=True),
    "nemotron_h": Architecture(state_without_ffn=True),
    "nemotron_h_moe": Architecture(state_without_ffn=True),
}
_OTHER: Final = Architecture(known=False)


def architecture_of(name: str) -> Architecture:
    """Return what is assumed of the architecture `name`."""
    return _TABLE.get(name, _OTHER)


_SHARED_INDEXER: Final = "glm-dsa"
_SHARED_INDEXER_FROM: Final = 1 << 20
"""Trained context from which layers of glm-dsa share an indexer where the file lists none."""
_SHARING: Final = 4
"""Number of layers that share one indexer."""
_NOT_SHARING: Final = 2
"""Number of first layers that have an indexer each."""
_TOKEN_SHIFTS: Final = 2
"""Columns that RWKV keeps of the last token where the file does not say."""
_KDA_COLUMNS: Final = 3
"""Columns of the convolution that Kimi's linear attention keeps by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """Memory of one layer, in elements."""

    keys: int = 0
    """Elements of the keys of one token."""
    values: int = 0
    indexer_keys: int = 0
    windowed: bool = False
    """Whether only a window of the context is kept."""
    state: int = 0
    """Elements of the state of one request."""


def layers_of(facts: GgufFacts) -> tuple[LayerMemory, ...]:
    """Return the memory of each layer of the file; the last ones may only draft.

    Raises:
        UnknownError: a value makes no sense.
    """
    architecture = architecture_of(facts.architecture)
    if architecture.encoder or facts.value("attention.causal") is False:
        return (LayerMemory(),) * facts.blocks
    return tuple(_layers(facts, architecture))


def window_of(facts: GgufFacts) -> int:
    """Return the tokens of the window; 0: no layer has one."""
    architecture = architecture_of(facts.architecture)
    only = architecture.windows_only_with
    if only and facts.layers != only:
        return 0
    found = facts.number("attention.sliding_window")
    return architecture.window if found is None else found


def _layers(facts: GgufFacts, architecture: Architecture) -> Iterator[LayerMemory]:
    heads = facts.per_layer("attention.head_count_kv", default=facts.heads)
    windowed, recurrent = _windowed(facts, architecture), _recurrent(facts, architecture, heads)
    key, value = _head_sizes(facts)
    swa_key = facts.number("attention.key_length_swa") or key
    swa_value = facts.number("attention.value_length_swa") or value
    latent = bool(
        facts.number("attention.key_length_mla") and facts.number("attention.value_length_mla")
    )
    state, indexed = _state_elements(facts), _indexed(facts)
    indexer_keys = facts.number("attention.indexer.key_length") or 0
    caches = _own_caches(facts, architecture)
    for layer, (count, window) in enumerate(zip(heads, windowed, strict=True)):
        if recurrent[layer] and not architecture.state_beside_cache:
            yield LayerMemory(state=state)
            continue
        kept = count if layer < caches or layer >= facts.layers else 0
        yield LayerMemory(
            keys=kept * (swa_key if window else key),
            values=0 if latent else kept * (swa_value if window else value),
            indexer_keys=indexer_keys if kept and indexed[layer] else 0,
            windowed=window,
            state=state if recurrent[layer] else 0,
        )


def _head_sizes(facts: GgufFacts) -> tuple[int, int]:
    """Return the sizes of a key and a value; by default the embedding's size over the heads."""
    usual = facts.embedding // max(1, *facts.heads)
    key = facts.number("attention.key_length")
    value = facts.number("attention.value_length")
    return (usual if key is None else key), (usual if value is None else value)


def _windowed(facts: GgufFacts, architecture: Architecture) -> tuple[bool, ...]:
    """Return which layers keep a window: the file's list, its period, or the loader's period."""
    nowhere = (False,) * facts.blocks
    if not window_of(facts):
        return nowhere
    name = "attention.sliding_window_pattern"
    listed = facts.marked(name)
    if listed is not None:
        return listed
    period = architecture.period
    if period and type(facts.value(name)) is int:  # only these loaders read a number as a period
        period = facts.number(name) or 0
        if not period:
            return (True,) * facts.layers + nowhere[facts.layers :]
    if not period:
        return nowhere
    dense = 0 if architecture.dense_first else period - 1
    found = tuple(layer % period != dense for layer in range(facts.layers))
    return found + nowhere[facts.layers :]


def _recurrent(
    facts: GgufFacts, architecture: Architecture, heads: tuple[int, ...]
) -> tuple[bool, ...]:
    """Return which layers keep a state: the file's list, an interval, or those without KV heads."""
    if architecture.state_beside_cache:
        return (True,) * facts.blocks
    listed = facts.marked("attention.recurrent_layers")
    if listed is not None:
        return listed
    interval = facts.number("full_attention_interval") or architecture.interval
    if interval:
        return tuple(
            layer < facts.layers and (layer + 1) % interval != 0 for layer in range(facts.blocks)
        )
    if architecture.state_without_ffn:
        wide = facts.per_layer("feed_forward_length", default=(0,))
        return tuple(not n and not width for n, width in zip(heads, wide, strict=True))
    return tuple(not n for n in heads)


def _own_caches(facts: GgufFacts, architecture: Architecture) -> int:
    """Return the number of first layers that have a cache of their own."""
    if architecture.own_caches:
        return architecture.own_caches
    return max(0, facts.blocks - (facts.number("attention.shared_kv_layers") or 0))


def _indexed(facts: GgufFacts) -> tuple[bool, ...]:
    """Return which layers have an indexer of their own; the others use the one before."""
    listed = facts.marked("attention.indexer.types")
    if listed is not None:
        return listed
    trained = facts.number("context_length", most=1 << 40) or 0
    if facts.architecture == _SHARED_INDEXER and trained >= _SHARED_INDEXER_FROM:
        return tuple(
            i < _NOT_SHARING or (i - _NOT_SHARING) % _SHARING == 0 for i in range(facts.blocks)
        )
    return (True,) * facts.blocks


def _state_elements(facts: GgufFacts) -> int:
    """Return the elements of one request's state in a layer: ``n_embd_r`` and ``n_embd_s``."""
    if head := facts.number("wkv.head_size"):
        return ((facts.number("token_shift_count") or _TOKEN_SHIFTS) + head) * facts.embedding
    if short := facts.number("shortconv.l_cache"):
        return facts.embedding * (short - 1)
    kernel = facts.number("ssm.conv_kernel") or 0
    columns = max(0, kernel - 1)
    if head := facts.number("kda.head_dim"):
        heads = facts.heads[0]
        return (3 * (columns if kernel else _KDA_COLUMNS) + head) * heads * head
    inner, size = facts.number("ssm.inner_size") or 0, facts.number("ssm.state_size") or 0
    groups = facts.number("ssm.group_count") or 0
    return columns * (inner + 2 * groups * size) + size * inner


TYPES: Final = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
    "q6_0": (32, 26),
    "q8_KV": (32, 32),
}
"""Elements of a block and the bytes that they take, by cache type (``GGML_QUANT_SIZES``). The last two are
ik_llama.cpp's; ``q8_KV`` has 8 bytes more for each row."""
_PADDING: Final = 256
"""Multiple to which the tokens of a cache are rounded up (``llama_context``, ``n_ctx_seq``)."""
_STATE_BYTES: Final = 4
"""Bytes of an element of a recurrent state, which is F32 (``llama_memory_recurrent``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSize:
    """Size of the caches: tokens, requests and types."""

    tokens: int
    """Tokens of one cache: of one request, or of all requests where they share one."""
    caches: int
    """Number of caches: one for each request, or one shared."""
    requests: int
    window: int = 0
    """Tokens of the window of layers that have one."""
    batch: int = 0
    """Tokens of one micro-batch, for which a windowed cache has room beside the window."""
    drafts: int = 0
    """Drafted tokens before a check, for each of which a copy of the state is kept."""
    key_type: str = "f16"
    value_type: str = "f16"
    transposed: bool = False
    """Whether values are stored for the widest layer in all layers: without flash attention."""

    @property
    def cells(self) -> int:
        """Return the tokens of one cache, padded."""
        return _padded(self.tokens)

    @property
    def windowed_cells(self) -> int:
        """Return the tokens of one cache of a layer with a window (llama-kv-cache-iswa.cpp)."""
        shared = self.requests if self.caches == 1 else 1
        return _padded(min(self.cells, self.window * shared + self.batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Bytes that one layer keeps."""

    cache: int
    state: int
    least: int
    """Bytes of both that every build since 2025 keeps: without copies for drafts and indexers."""
    checkpoint: int
    """Bytes of one checkpoint of one request."""


def bytes_of(layers: tuple[LayerMemory, ...], size: CacheSize) -> tuple[LayerBytes, ...]:
    """Return the bytes of every layer.

    Raises:
        UnknownError: a cache type is not known.
    """
    widest = max((layer.values for layer in layers), default=0) if size.transposed else 0
    return tuple(_bytes(layer, size, widest) for layer in layers)


def _bytes(layer: LayerMemory, size: CacheSize, widest: int) -> LayerBytes:
    cells = (size.windowed_cells if layer.windowed else size.cells) * size.caches
    kept = max(layer.values, widest) if layer.values else 0
    row = row_bytes(layer.keys, size.key_type) + row_bytes(kept, size.value_type)
    indexer = row_bytes(layer.indexer_keys, size.key_type)
    state = layer.state * _STATE_BYTES
    window = row * size.windowed_cells if layer.windowed else 0
    return LayerBytes(
        cache=(row + indexer) * cells,
        state=state * size.requests * (1 + size.drafts),
        least=row * cells + state * size.requests,
        checkpoint=state + window,
    )


def row_bytes(elements: int, kind: str) -> int:
    """Return the bytes of a row of a cache. Raises `UnknownError`."""
    if kind not in TYPES:
        raise UnknownError(f"the cache type {kind} is not known")
    block, stored = TYPES[kind]
    return -(-elements // block) * stored


def _padded(tokens: int) -> int:
    return -(-tokens // _PADDING) * _PADDING

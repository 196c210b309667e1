"""Estimate of a GGUF model under llama.cpp.

The cache is exact for known architectures (`gguf_layers`), and then a start that could never hold it is
refused. Compute buffers are an allowance. The prompt cache (``--cache-ram``, 8 GiB of RAM by default)
is left out: it grows only with use, and ends with it. Weights are counted tensor by tensor, each where llama.cpp
puts it: on the GPUs, or in main memory by its layer or by its name.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from appliance.engines.shared.engine import DraftLoading, LlamaCppLoading
from appliance.engines.shared.llama_cpp import DEFAULT_BATCH, DEFAULT_UBATCH
from appliance.model.memory_parts import Alternative, MemoryParts, SettingChange
from appliance.model.model_headers import Gguf, Model, Tensor
from appliance.model.profile import Estimate
from appliance.model.spec import Profile
from appliance.profiles.estimates.gguf_layers import (
    TYPES,
    CacheSize,
    GgufFacts,
    LayerMemory,
    architecture_of,
    bytes_of,
    layers_of,
    row_bytes,
    window_of,
)

_LAYER_NUMBER: Final = r"\.(\d{1,5})"
_BLOCK: Final = re.compile(rf"blk{_LAYER_NUMBER}\.", re.ASCII)
_EXPERTS: Final = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Pattern of expert tensors: ``LLM_FFN_EXPS_REGEX`` of llama.cpp's common.h."""
_FFN: Final = r"\.ffn_(up|down|gate)\."
"""Pattern of the tensors of a dense feed-forward network that ``--n-cpu-ffn`` names."""
_OTHER_SYNTAX: Final = "[["
"""Beginning of character classes that regular expressions of C++ have, and Python's do not."""
_EMBEDDINGS: Final = ("token_embd.", "token_types.", "position_embd.", "per_layer_token_embd.")
"""Input tensors, which stay in main memory however many layers are offloaded."""
_OUTPUT: Final = "output.weight"
_TIED: Final = "token_embd.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Bytes of the weights, by the memory that holds them."""

    gpu: int
    least_gpu: int
    """Bytes of `gpu` in the layers alone: builds differ in whether the output is offloaded with
    them."""
    ram: int


def layers_on_gpus(profile: Profile, asked: Literal["all"] | int | None, blocks: int) -> int:
    """Return ``--gpu-layers`` as rendered; one more than `blocks` offloads the output too."""
    if profile.gpus == ():
        return 0
    return blocks + 1 if asked is None or asked == "all" else min(asked, blocks + 1)


def _first_layer(layers: int, offloaded: int) -> int:
    """Return the index of the first layer on the GPUs, which hold the last layers.

    ``llama_model::load_tensors``: ``i_gpu_start = max(n_layer + 1 - n_gpu_layers, 0)``: the
    output counts as the last. Builds before 2026 count it after the layers; that is one layer
    more, without the output.
    """
    return max(layers + 1 - offloaded, 0)


def weights(
    tensors: Sequence[Tensor],
    blocks: int,
    offloaded: int,
    kept: Callable[[str], bool],
    loaded: int,
) -> Weights:
    """Return the bytes of the weights on GPUs and in main memory.

    Args:
        tensors: Of all files of the model.
        blocks: Number of layers in the files.
        offloaded: See `layers_on_gpus`.
        kept: Whether a tensor is kept in main memory by name.
        loaded: Number of first layers that are loaded; the others only draft, and are skipped.
    """
    gpu = least = ram = tied = 0
    first, has_output = _first_layer(blocks, offloaded), False
    for tensor in tensors:
        match = _BLOCK.match(tensor.name)
        layer = blocks if match is None else int(match[1])
        if match is not None and layer >= loaded:
            continue
        has_output |= tensor.name == _OUTPUT
        tied += tensor.stored_bytes if tensor.name == _TIED else 0
        stays = tensor.name.startswith(_EMBEDDINGS) or kept(tensor.name)
        if offloaded and layer >= first and not stays:
            gpu += tensor.stored_bytes
            least += tensor.stored_bytes if match is not None else 0
        else:
            ram += tensor.stored_bytes
    if offloaded and not has_output:
        gpu += tied  # the embeddings serve as output too, and then are in both memories
    return Weights(gpu=gpu, least_gpu=least, ram=ram)


def expert_layers(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the layers that have experts, in order; empty: a model without experts."""
    experts = re.compile(f"blk{_LAYER_NUMBER}{_EXPERTS}", re.ASCII)
    found = (experts.match(tensor.name) for tensor in tensors)
    return tuple(sorted({int(match[1]) for match in found if match is not None}))


def kept_in_ram(loading: LlamaCppLoading) -> Callable[[str], bool]:
    """Return a test for the tensors that the profile keeps in main memory by name."""
    patterns = [re.compile(p) for p in _patterns(loading) if _compiles(p)]
    # Layers are looked up: an alternative for each in a pattern would cost each tensor all of them.
    listed = [
        (re.compile(f"blk{_LAYER_NUMBER}{tensors}", re.ASCII), frozenset(layers))
        for layers, tensors in _of_layers(loading)
    ]
    return lambda name: (
        any(p.search(name) for p in patterns)
        or any(
            (match := p.search(name)) is not None and int(match[1]) in layers
            for p, layers in listed
        )
    )


def _is_followed(loading: LlamaCppLoading) -> bool:
    """Tell whether every tensor override can be read here, so that none keeps more in main memory."""
    return all(_compiles(pattern) for pattern, _ in _overrides(loading))


def _patterns(loading: LlamaCppLoading) -> Iterable[str]:
    if loading.cpu_experts == "all":
        yield _EXPERTS
    for pattern, device in _overrides(loading):
        if device.upper().startswith("CPU"):
            yield pattern


def _overrides(loading: LlamaCppLoading) -> Iterable[tuple[str, str]]:
    for override in loading.overrides:
        pattern, _, device = override.rpartition("=")
        yield pattern, device


def _of_layers(loading: LlamaCppLoading) -> Iterable[tuple[Iterable[int], str]]:
    """Yield the layers of which tensors stay in main memory, with the pattern that follows the layer."""
    if loading.cpu_experts != "all":
        yield loading.cpu_experts, _EXPERTS
    yield range(loading.cpu_ffn), _FFN


def _compiles(pattern: str) -> bool:
    if _OTHER_SYNTAX in pattern:
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return bool(pattern)


_CONTEXT_BYTES: Final = 384 << 20
"""Bytes of a CUDA context with the library's workspace: some hundred MiB a GPU, by driver and
card."""
_ACTIVATIONS: Final = 16
"""Vectors of the embedding's size that a graph keeps for each token of a batch, roughly."""
_QUANTISED: Final = ("q8_0", "q4_0")
"""Cache types that are proposed, the first that is smaller than the profile's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Memory of one model, by where it is."""

    vram: MemoryParts
    ram: MemoryParts
    least: int
    """Bytes on the GPUs that the model cannot do without."""

    def plus(self, other: "_Placed") -> "_Placed":
        return _Placed(
            vram=self.vram.plus(other.vram),
            ram=self.ram.plus(other.ram),
            least=self.least + other.least,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Facts of one model and how the profile loads it."""

    profile: Profile
    loading: LlamaCppLoading
    gguf: Gguf
    facts: GgufFacts

    @property
    def on_gpus(self) -> int:
        """Return the number of layers on the GPUs, with the output."""
        return layers_on_gpus(self.profile, self.loading.gpu_layers, self.facts.blocks)

    @property
    def known(self) -> bool:
        """Whether the cache is exact."""
        return architecture_of(self.facts.architecture).known and self.loading.certain


def estimate(profile: Profile, loading: LlamaCppLoading, model: Model, gguf: Gguf) -> Estimate:
    """Return the parts of a model's memory. Raises `UnknownError`."""
    plan = _Plan(
        profile=profile,
        loading=loading,
        gguf=gguf,
        facts=GgufFacts(gguf),
    )
    size = _cache_size(plan)
    whole = _all_parts(plan, model, size)
    return Estimate(
        vram_bytes=whole.vram.total_bytes,
        least_vram_bytes=whole.least,
        ram_bytes=whole.ram.total_bytes,
        notes=tuple(_notes(plan, model)),
        vram=whole.vram,
        ram=whole.ram,
        alternatives=tuple(_alternatives(plan, model, size)),
    )


def gpu_weights(profile: Profile, loading: LlamaCppLoading, gguf: Gguf) -> range | None:
    """Return the least and most bytes of the model's own weights on the GPUs, as a range of both.

    Builds differ in whether they load the layers that only draft, and the output with the others.

    Returns:
        None: the profile keeps weights where no rule here follows, or its GPUs have none.

    Raises:
        UnknownError: the header lacks what is needed.
    """
    plan = _Plan(profile=profile, loading=loading, gguf=gguf, facts=GgufFacts(gguf))
    is_followed_here = plan.known and _is_followed(loading) and not loading.expert_cache_mib
    if not plan.on_gpus or not is_followed_here:
        return None
    kept = kept_in_ram(loading)
    fewest, all_of_them = (
        weights(gguf.tensors, plan.facts.blocks, plan.on_gpus, kept, loaded)
        for loaded in (plan.facts.layers, plan.facts.blocks)
    )
    return range(fewest.least_gpu, all_of_them.gpu)


def context_tokens(profile: Profile, loading: LlamaCppLoading, gguf: Gguf) -> int | None:
    """Return the tokens that one request may use; None: the file does not say. Raises `UnknownError`."""
    plan = _Plan(profile=profile, loading=loading, gguf=gguf, facts=GgufFacts(gguf))
    return _tokens(plan) or None


def _tokens(plan: _Plan) -> int:
    """Return the tokens of one cache, as engines render it: ``ctx`` is one request's.

    Without ``ctx`` and a default llama.cpp takes what the model was trained for, for all requests
    together.
    """
    given = plan.profile.ctx or plan.loading.default_ctx
    if given is not None:
        return given
    trained = plan.facts.number("context_length") or 0
    return trained if plan.loading.kv_unified else trained // (plan.profile.parallel or 1)


def _cache_size(plan: _Plan) -> CacheSize:
    requests, loading, draft = plan.profile.parallel or 1, plan.loading, plan.loading.draft
    kv, tokens = plan.profile.kv, _tokens(plan)
    caches = 1 if loading.kv_unified else requests
    return CacheSize(
        tokens=tokens,
        caches=caches,
        requests=requests,
        window=window_of(plan.facts),
        batch=_batch(loading, tokens * caches),
        drafts=draft.tokens if draft is not None and draft.own_layers else 0,
        key_type="f16" if kv is None else kv.k,
        value_type="f16" if kv is None else kv.v,
        transposed=loading.flash_attn == "off",
    )


def _batch(loading: LlamaCppLoading, tokens: int) -> int:
    """Return the tokens of a micro-batch, which is no larger than a batch or the context."""
    batch = loading.batch or DEFAULT_BATCH
    return min(loading.ubatch or DEFAULT_UBATCH, batch, max(tokens, 1))


def _all_parts(plan: _Plan, model: Model, size: CacheSize) -> _Placed:
    draft = plan.loading.draft
    by_itself = draft is not None and draft.own_layers and draft.model is None
    whole = _parts(plan, size, range(plan.facts.blocks if by_itself else plan.facts.layers))
    in_ram = plan.profile.gpus == () or plan.loading.projector_in_ram
    projector = MemoryParts(weights_bytes=model.projector_bytes)
    none = MemoryParts()
    whole = whole.plus(
        _Placed(vram=none if in_ram else projector, ram=projector if in_ram else none, least=0)
    )
    if model.draft is None or draft is None:
        return whole
    return whole.plus(_drafting(plan, model.draft, draft, size))


def _drafting(plan: _Plan, gguf: Gguf, draft: DraftLoading, size: CacheSize) -> _Placed:
    """Return the parts of a draft model, which has as much context as the model."""
    facts = GgufFacts(gguf)
    loading = LlamaCppLoading(gpu_layers=draft.gpu_layers, flash_attn=plan.loading.flash_attn)
    own = replace(
        size,
        window=window_of(facts),
        drafts=0,
        key_type=draft.key_type,
        value_type=draft.value_type,
    )
    drafting = replace(plan, loading=loading, gguf=gguf, facts=facts)
    # The file may be nothing but the drafting layers that the model's own file lacks.
    used = range(facts.layers, facts.blocks) if draft.own_layers else range(facts.layers)
    return replace(_parts(drafting, own, used), least=0)


def _parts(plan: _Plan, size: CacheSize, used: range) -> _Placed:
    """Return the parts of a model of which the layers `used` are loaded and keep a cache."""
    facts, loading, profile = plan.facts, plan.loading, plan.profile
    placed = weights(plan.gguf.tensors, facts.blocks, plan.on_gpus, kept_in_ram(loading), used.stop)
    layers = layers_of(facts)
    if loading.full_windows:
        layers = tuple(replace(layer, windowed=False) for layer in layers)
    kept = bytes_of(layers, size)
    first = facts.blocks if loading.cache_in_ram else _first_layer(facts.blocks, plan.on_gpus)
    on_gpus = [kept[i] for i in used if i >= first]
    in_ram = [kept[i] for i in used if i < first]
    least = [kept[i].least for i in used if first <= i < facts.layers] if plan.known else []
    count = loading.checkpoints * size.requests
    buffers, outputs = _buffer_bytes(plan, layers, size), _output_bytes(plan, size)
    gpus = 0 if profile.gpus == () else _gpu_count(profile, loading)
    return _Placed(
        vram=MemoryParts(
            weights_bytes=placed.gpu + (loading.expert_cache_mib << 20 if gpus else 0),
            cache_bytes=sum(one.cache for one in on_gpus),
            state_bytes=sum(one.state for one in on_gpus),
            compute_bytes=(buffers + _CONTEXT_BYTES) * gpus,
        ),
        ram=MemoryParts(
            weights_bytes=placed.ram,
            cache_bytes=sum(one.cache for one in in_ram),
            state_bytes=sum(one.state for one in in_ram),
            compute_bytes=outputs + (0 if gpus else buffers),
            checkpoints_bytes=sum(kept[i].checkpoint for i in used) * count,
        ),
        least=(placed.least_gpu if _is_followed(loading) else 0) + sum(least),
    )


def _outputs(size: CacheSize, batch: int) -> int:
    """Return the tokens of a batch whose logits are computed (``server_output_limits``)."""
    return min(batch, size.requests * (1 + size.drafts))


def _output_bytes(plan: _Plan, size: CacheSize) -> int:
    """Return the bytes of the logits that are kept for the sampler, in main memory."""
    return _outputs(size, size.batch) * plan.facts.vocabulary * 4


def _buffer_bytes(plan: _Plan, layers: tuple[LayerMemory, ...], size: CacheSize) -> int:
    """Return a rough allowance for the compute buffers of one micro-batch on one device, all in F32.

    What ``ggml_gallocr`` reserves for the worst graph is known only to llama.cpp; the largest
    parts are the logits of the tokens that are sampled, the feed-forward and attention activations,
    the mask over the context, and the scores of every head where flash attention is off.
    """
    facts = plan.facts
    wide = max(facts.per_layer("feed_forward_length", default=(facts.embedding,)))
    cells = size.cells if any(layer.keys and not layer.windowed for layer in layers) else 0
    cells += size.windowed_cells if any(layer.windowed for layer in layers) else 0
    cells *= size.caches
    per_token = _ACTIVATIONS * facts.embedding + 2 * wide + cells
    if plan.loading.flash_attn == "off":
        per_token += cells * max(facts.heads)
    logits = _outputs(size, size.batch) * facts.vocabulary
    return (size.batch * per_token + logits) * 4


def _gpu_count(profile: Profile, loading: LlamaCppLoading) -> int:
    if loading.split_mode == "none":
        return 1
    if profile.gpus == "all":
        return max(1, len([part for part in loading.tensor_split if part]))
    return len(profile.gpus)


def _alternatives(plan: _Plan, model: Model, size: CacheSize) -> Iterator[Alternative]:
    half = replace(size, tokens=size.tokens // 2)
    if half.tokens and half.cells < size.cells:
        setting = f"ctx = {half.tokens}"
        yield _alternative(plan, model, half, SettingChange.HALF_CONTEXT, setting)
    for kind in _QUANTISED if plan.loading.sets_types else ():
        if row_bytes(_ROW, kind) < min(
            row_bytes(_ROW, size.key_type), row_bytes(_ROW, size.value_type)
        ):
            small = replace(size, key_type=kind, value_type=kind)
            setting = f'kv = "{kind}"'
            yield _alternative(plan, model, small, SettingChange.QUANTISED_CACHE, setting)
            return


_ROW: Final = max(block for block, _ in TYPES.values())
"""Elements for which the sizes of cache types are compared."""


def _alternative(
    plan: _Plan, model: Model, size: CacheSize, change: SettingChange, setting: str
) -> Alternative:
    found = _all_parts(plan, model, size)
    return Alternative(change=change, setting=setting, vram=found.vram, ram=found.ram)


def _notes(plan: _Plan, model: Model) -> Iterator[str]:
    facts = plan.facts
    if not architecture_of(facts.architecture).known:
        yield f"architecture {facts.architecture} is not known: cache guessed"
        if facts.number("attention.sliding_window") and not any(
            layer.windowed for layer in layers_of(facts)
        ):
            yield "sliding window, upper bound"
    yield "compute buffers guessed"
    draft = plan.loading.draft
    if (
        draft is not None
        and model.draft is None
        and not (draft.own_layers and facts.has_drafting_layers)
    ):
        yield "draft model not counted"

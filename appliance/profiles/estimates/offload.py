"""Offload: the tensors of a model that llama.cpp loads, and those that it puts on the GPUs."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from appliance.engines.shared.engine import LlamaCppLoading
from appliance.model.model_headers import Tensor
from appliance.model.spec import Profile

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


def first_layer(layers: int, offloaded: int) -> int:
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
    first, has_output = first_layer(blocks, offloaded), False
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


def is_followed(loading: LlamaCppLoading) -> bool:
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

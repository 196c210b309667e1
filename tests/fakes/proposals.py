"""Boxes and headers of models for proposals of profiles."""

from collections.abc import Mapping, Sequence
from typing import Final

from appliance.engines.shared.invocation import InvocationContext
from appliance.model.memory import DeviceMemory, HostMemory
from appliance.model.model_headers import Gguf, Model, Safetensors, Tensor, Value
from appliance.model.spec import Profile
from appliance.profiles.foreign.profile_draft import DraftKey
from appliance.profiles.proposing.engine_choice import EngineChoice, facts_of
from appliance.profiles.proposing.fit_judge import FitJudge, ProposalBox
from appliance.profiles.proposing.proposal import Proposal, ProposalSubject, propose
from appliance.system.profile_files.drafts import keys_text
from appliance.system.profile_files.loading import parse_profile
from tests.bench.estimate_models import GGUF_MODELS

GIB: Final = 1 << 30
MIB: Final = 1 << 20
DRIVER_BYTES: Final = 300 * MIB
MARGIN_BYTES: Final = 256 * MIB
SIZES_GIB: Final[Mapping[str, tuple[float, float]]] = {
    "Qwen3.6-35B-A3B": (20.7, 0.93),
    "Gemma-4-26B-A4B": (15.6, 0.85),
    "GLM-4.7-Flash": (17.1, 0.9),
    "gpt-oss-20b": (11.3, 0.87),
    "gpt-oss-120b": (59.0, 0.96),
    "Qwen3-235B-A22B": (132.0, 0.97),
    "Qwen3.6-27B": (15.9, 0.0),
    "Gemma-3-27B": (15.4, 0.0),
    "Qwen3-32B": (18.4, 0.0),
    "Llama-3.3-70B": (39.6, 0.0),
    "Llama-3.1-8B": (4.6, 0.0),
}
"""Sizes of files in four bits, and the share of their weights that experts have."""


def box(*gpus_gib: float, ram_gib: float = 64) -> ProposalBox:
    """Return a box with GPUs of these sizes, of which the driver holds a little, and four GiB of RAM in use."""
    return ProposalBox(
        devices=tuple(gpu(index, size) for index, size in enumerate(gpus_gib)),
        host=HostMemory(
            total_bytes=int(ram_gib * GIB), available_bytes=max(0, int((ram_gib - 4) * GIB))
        ),
        margin_bytes=MARGIN_BYTES,
    )


def gpu(index: int, size_gib: float, **more: object) -> DeviceMemory:
    size = int(size_gib * GIB)
    values: dict[str, object] = {
        "total_bytes": size,
        "free_bytes": max(0, size - DRIVER_BYTES),
        "used_bytes": 0,
    }
    return DeviceMemory(index=index, uuid=f"GPU-{index}", name="card", **values | more)  # type: ignore[arg-type]


def known(name: str) -> Model:
    """Return the header of a known model, with the weights of a file in four bits."""
    model = next(one for one in GGUF_MODELS if one.name == name)
    size_gib, share = SIZES_GIB[name]
    count = len(model.layers) + model.drafting
    return gguf(
        {f"{model.architecture}.{key}": value for key, value in model.keys.items()},
        architecture=model.architecture,
        layers=count,
        layer_bytes=int(size_gib * GIB / (count + 2)),
        experts=share,
    )


def gguf(
    metadata: Mapping[str, Value],
    *,
    architecture: str = "llama",
    layers: int = 4,
    layer_bytes: int = 256 * MIB,
    experts: float = 0.0,
) -> Model:
    tensors = [Tensor("token_embd.weight", layer_bytes), Tensor("output.weight", layer_bytes)]
    for layer in range(layers):
        moved = int(layer_bytes * experts)
        tensors.append(Tensor(f"blk.{layer}.attn_q.weight", layer_bytes - moved))
        if moved:
            tensors.append(Tensor(f"blk.{layer}.ffn_up_exps.weight", moved))
    whole = {"general.architecture": architecture, **metadata}
    return Model(
        main=Gguf(metadata=whole, tensors=tuple(tensors), file_bytes=layer_bytes * (layers + 2))
    )


LLAMA: Final[Mapping[str, Value]] = {
    "llama.block_count": 4,
    "llama.context_length": 131072,
    "llama.embedding_length": 1024,
    "llama.feed_forward_length": 4096,
    "llama.attention.head_count": 16,
    "llama.attention.head_count_kv": 4,
    "llama.vocab_size": 32000,
}
CONFIG: Final[Mapping[str, object]] = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}


def weights(size_gib: float, *, pools: bool = False, **config: object) -> Model:
    """Return the headers of a model in safetensors files."""
    size = int(size_gib * GIB)
    return Model(
        main=Safetensors(
            config={**CONFIG, **config}, weights_bytes=size, file_bytes=size, pools=pools
        )
    )


LLAMA_SERVER: Final = EngineChoice(
    engine="llama-server", binary="/opt/llama-server", why="a GGUF file"
)
VLLM: Final = EngineChoice(engine="vllm", binary="/opt/vllm", why="safetensors files")
SGLANG: Final = EngineChoice(engine="sglang", binary="/opt/sglang", why="safetensors files")
EMBEDDED: Final = EngineChoice(engine="xllamacpp", binary="", why="a GGUF file")


def judge_of(here: ProposalBox, model: Model) -> FitJudge:
    return FitJudge(here, InvocationContext(), lambda _: model)


def subject_of(
    model: Model, choice: EngineChoice = LLAMA_SERVER, tokens: int | None = None
) -> ProposalSubject:
    return ProposalSubject(
        name="p",
        model="/m/model.gguf",
        title="model",
        port=8020,
        choice=choice,
        facts=facts_of(model),
        asked_tokens=tokens,
    )


def read(name: str, keys: Sequence[DraftKey]) -> Profile:
    """Return the profile of keys, by the rules of profiles."""
    return parse_profile(name, keys_text(keys).encode())


def proposed(
    model: Model,
    here: ProposalBox,
    choice: EngineChoice = LLAMA_SERVER,
    tokens: int | None = None,
) -> Proposal:
    return propose(subject_of(model, choice, tokens), judge_of(here, model), read)

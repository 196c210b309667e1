"""Every trap: a profile that has it, and one like it that has not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from appliance.engines import ENGINES
from appliance.model.memory import GpuState
from appliance.model.model_headers import Gguf, Model, ModelReference, ModelTraits, Tensor
from appliance.model.trap_names import TrapName
from appliance.profiles.linting.lint import RETIRED, TRAPS, profile_traps, warning_of
from appliance.profiles.linting.trap import GpuFacts
from tests.fakes.trap_samples import (
    GIB,
    RTX_3090,
    RTX_4090,
    RTX_5060_TI,
    UNTOLD,
    facts,
    gpus,
    linted,
    names,
)

HYBRID = ModelTraits(family="qwen3_5", is_hybrid=True, drafts=True)
MTP = "speculative = { method = 'mtp', tokens = 3 }"


@dataclass(frozen=True, slots=True)
class Case:
    """One profile."""

    engine: str
    keys: str = ""
    table: str = ""
    on: GpuFacts | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


def gguf(weights_gib: int, **metadata: object) -> Any:
    """A reader that finds a small llama whose layers take so much."""
    header = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.context_length": 4096,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
        "llama.vocab_size": 1000,
        **metadata,
    }
    tensors = tuple(
        Tensor(f"blk.{layer}.ffn_up.weight", weights_gib * GIB // 2) for layer in (0, 1)
    )
    main = Gguf(metadata=header, tensors=tensors, file_bytes=weights_gib * GIB)  # type: ignore[arg-type]

    def look(_reference: ModelReference) -> Model:
        return Model(main=main)

    return look


def case(
    engine: str, keys: str = "", table: str = "", on: GpuFacts | None = None, **more: Any
) -> Case:
    return Case(engine, keys, table, on, more)


TWO_3090, TWO_4090, TWO_5060 = (
    gpus(RTX_3090, RTX_3090),
    gpus(RTX_4090, RTX_4090),
    gpus(RTX_5060_TI, RTX_5060_TI),
)
LOST = replace(
    TWO_5060,
    memory=(
        TWO_5060.memory[0],
        replace(TWO_5060.memory[1], state=GpuState.LOST, total_bytes=0, free_bytes=0, used_bytes=0),
    ),
)
"""Two cards, of which one fell off the bus."""
CUDA_13 = "/opt/llama.cpp-cuda13/bin/llama-server"
Q4_K_M = ModelTraits(quantisation="q4_k_m")

CASES: Mapping[TrapName, tuple[Case, Case]] = {
    TrapName.ASYMMETRIC_KV: (
        case("ik-llama-server", "kv = { k = 'q8_0', v = 'q4_0' }"),
        case("ik-llama-server", "kv = { k = 'q8_0', v = 'q4_0' }\ngpus = []"),
    ),
    TrapName.CACHE_TYPE_ON_CPU: (
        case("llama-server", "kv = 'q5_1'"),
        case("llama-server", "kv = 'q5_1'", "kv_offload = false"),
    ),
    TrapName.QUANTISED_V_WITHOUT_FLASH_ATTENTION: (
        case("llama-server", "kv = 'q8_0'", "flash_attn = false"),
        case("llama-server", "kv = 'bf16'", "flash_attn = false"),
    ),
    TrapName.Q4_0_CACHE_ON_BLACKWELL: (
        case("llama-server", "kv = 'q4_0'", on=TWO_5060, version="b9333 (35c9b1f39)"),
        case("llama-server", "kv = 'q4_0'", on=TWO_5060, version="b9867 (35c9b1f39)"),
    ),
    TrapName.PROMPT_CACHE: (
        case("llama-server", "", "mlock = true"),
        case("llama-server", "need = { ram = '20GiB' }", "mlock = true"),
    ),
    TrapName.MAPPED_EXPERTS: (
        case("llama-server", "", "cpu_experts = '26-29'"),
        case("llama-server", "", "cpu_experts = '26-29'\nload_mode = 'none'"),
    ),
    TrapName.UNEVEN_EXPERTS: (
        case("llama-server", "", "n_cpu_moe = 20", on=TWO_4090),
        case("llama-server", "", "n_cpu_moe = 20", on=gpus(RTX_4090)),
    ),
    TrapName.DENSE_FIRST_LAYERS: (
        case("llama-server", "", "n_cpu_moe = 3", traits=ModelTraits(dense_layers=3)),
        case("llama-server", "", "n_cpu_moe = 4", traits=ModelTraits(dense_layers=3)),
    ),
    TrapName.SHARED_CPUS: (
        case("llama-server", "", "threads = 8\ncpus = '0-3'"),
        case("llama-server", "", "threads = 4\ncpus = '0-3'"),
    ),
    TrapName.EMBEDDING_UBATCH: (
        case("llama-server", "ctx = 4096", "rerank = true"),
        case("llama-server", "ctx = 4096", "rerank = true\nbatch = 4096\nubatch = 4096"),
    ),
    TrapName.NATIVE_FP4_Q4_K_M: (
        case("llama-server", on=TWO_5060, traits=Q4_K_M, binary=CUDA_13),
        case("llama-server", on=TWO_4090, traits=Q4_K_M, binary=CUDA_13),
    ),
    TrapName.EAGER_MODE: (
        case("sglang", "", "disable_cuda_graph = true"),
        case("vllm", "gpus = []", "enforce_eager = true"),
    ),
    TrapName.MEMORY_SHARE: (
        case("vllm", "", "gpu_memory_utilization = 0.95"),
        case("vllm", "", "gpu_memory_utilization = 0.95\nkv_cache_memory_bytes = '4GiB'"),
    ),
    TrapName.CUSTOM_ALL_REDUCE: (
        case("vllm", "", "tensor_parallel = 2", on=TWO_3090),
        case("vllm", "", "tensor_parallel = 2", on=TWO_5060),
    ),
    TrapName.NCCL_P2P_OFF: (
        case("vllm", "env = { NCCL_P2P_DISABLE = '1' }", "tensor_parallel = 2", on=TWO_3090),
        case("vllm", "env = { NCCL_P2P_DISABLE = '1' }", "tensor_parallel = 2", on=TWO_4090),
    ),
    TrapName.REASONING_PARSER: (
        case("vllm", traits=HYBRID),
        case("vllm", "thinking = 'off'", traits=HYBRID),
    ),
    TrapName.PARSER_WITHOUT_THINKING: (
        case("vllm", "thinking = 'off'", "reasoning_parser = 'qwen3'"),
        case("vllm", "thinking = 'on'", "reasoning_parser = 'qwen3'"),
    ),
    TrapName.PARALLEL_UNSET: (
        case("vllm", traits=HYBRID),
        case("vllm", "parallel = 2", traits=HYBRID),
    ),
    TrapName.FP8_EMULATED: (
        case("vllm", on=TWO_3090, traits=ModelTraits(quantisation="fp8")),
        case("vllm", on=TWO_4090, traits=ModelTraits(quantisation="fp8")),
    ),
    TrapName.AWQ_ON_BLACKWELL: (
        case("sglang", on=TWO_5060, traits=ModelTraits(quantisation="awq")),
        case("sglang", on=TWO_3090, traits=ModelTraits(quantisation="awq")),
    ),
    TrapName.FP8_CACHE_OF_CHECKPOINT: (
        case("vllm", traits=ModelTraits(cache_type="fp8")),
        case("vllm", "kv = 'fp8'", traits=ModelTraits(cache_type="fp8")),
    ),
    TrapName.MARLIN_ATOMIC_ADD: (
        case("vllm", traits=ModelTraits(quantisation="auto-round")),
        case(
            "vllm",
            "env = { VLLM_MARLIN_USE_ATOMIC_ADD = '1' }",
            traits=ModelTraits(quantisation="auto-round"),
        ),
    ),
    TrapName.IDLE_GPUS: (
        case("vllm", on=TWO_3090),
        case("vllm", "", "pipeline_parallel = 2", on=TWO_3090),
    ),
    TrapName.MTP_TOO_LONG: (
        case("vllm", "speculative = { method = 'mtp', tokens = 4 }"),
        case("vllm", MTP),
    ),
    TrapName.NO_MTP_WEIGHTS: (
        case("llama-server", MTP, traits=ModelTraits(drafts=False)),
        case("llama-server", MTP),
    ),
    TrapName.UNCHECKED_PATCH: (
        case("vllm", "patch = { command = ['/bin/true'] }"),
        case("vllm", "patch = { command = ['/bin/true'], expect = ['a'] }"),
    ),
    TrapName.RAISED_PRIORITY: (
        case("vllm", "unit = { Service = { Nice = -5 } }"),
        case("vllm", "unit = { Service = { Nice = 5 } }"),
    ),
    TrapName.PINNED_CPUS: (
        case("vllm", "unit = { Service = { CPUAffinity = '0-3' } }"),
        case("vllm", "unit = { Service = { CPUAffinity = '0-3' } }\ngpus = []"),
    ),
    TrapName.MEMLOCK_LIMIT: (
        case("llama-server", "unit = { Service = { LimitMEMLOCK = '8G' } }", "mlock = true"),
        case("llama-server", "unit = { Service = { LimitMEMLOCK = 'infinity' } }", "mlock = true"),
    ),
    TrapName.MISSING_UNIT: (
        case("vllm", "order = { after = ['vnp.service'] }", missing_units=("vnp.service",)),
        case("vllm", "order = { after = ['vpn.service'] }"),
    ),
    TrapName.VRAM_TOO_SMALL: (
        case("llama-server", on=TWO_5060, look=gguf(40)),
        case("llama-server", on=TWO_5060, look=gguf(20)),
    ),
    TrapName.RAM_TOO_SMALL: (
        case("llama-server", "gpus = []", look=gguf(40), ram_gib=32),
        case("llama-server", "gpus = []", look=gguf(12), ram_gib=32),
    ),
    TrapName.UNLOCKED_WEIGHTS: (
        case("llama-server", "gpus = []", look=gguf(18), ram_gib=32),
        case("llama-server", "gpus = []", "mlock = true", look=gguf(18), ram_gib=32),
    ),
}
OTHERS = [
    (TrapName.ASYMMETRIC_KV, False, case("llama-server", "kv = 'q5_1'")),
    (TrapName.ASYMMETRIC_KV, False, case("llama-server")),
    (TrapName.CACHE_TYPE_ON_CPU, False, case("llama-server", "kv = { k = 'q5_1', v = 'q5_0' }")),
    (TrapName.CACHE_TYPE_ON_CPU, False, case("ik-llama-server", "kv = 'q5_1'")),
    (TrapName.QUANTISED_V_WITHOUT_FLASH_ATTENTION, False, case("llama-server", "kv = 'q8_0'")),
    (TrapName.Q4_0_CACHE_ON_BLACKWELL, True, case("llama-server", "kv = 'q4_0'", on=TWO_5060)),
    (TrapName.Q4_0_CACHE_ON_BLACKWELL, False, case("llama-server", "kv = 'q4_0'", on=TWO_3090)),
    (TrapName.PROMPT_CACHE, True, case("llama-server", "", "n_cpu_moe = 4")),
    (TrapName.PROMPT_CACHE, True, case("ik-llama-server", "gpus = []")),
    (TrapName.PROMPT_CACHE, False, case("llama-server", "gpus = []", "embedding = true")),
    (TrapName.PROMPT_CACHE, False, case("llama-server", "gpus = []", "cache_ram = '0'")),
    (TrapName.PROMPT_CACHE, False, case("llama-server")),
    (TrapName.MAPPED_EXPERTS, False, case("llama-server", "gpus = []", "n_cpu_moe = 4")),
    (TrapName.UNEVEN_EXPERTS, False, case("llama-server", "gpus = [0]", "n_cpu_moe = 4", TWO_4090)),
    (
        TrapName.UNEVEN_EXPERTS,
        False,
        case("llama-server", "", "n_cpu_moe = 4\ntensor_split = [1, 2]", TWO_4090),
    ),
    (TrapName.SHARED_CPUS, False, case("llama-server", "", "cpus = '0-3'")),
    (TrapName.EMBEDDING_UBATCH, True, case("ik-llama-server", "ctx = 4096", "embedding = true")),
    (
        TrapName.EMBEDDING_UBATCH,
        False,
        case("llama-server", "ctx = 4096", "embedding = true\npooling = 'last'"),
    ),
    (TrapName.NATIVE_FP4_Q4_K_M, False, case("llama-server", on=TWO_5060, traits=Q4_K_M)),
    (TrapName.EAGER_MODE, True, case("vllm", "", "enforce_eager = true")),
    (TrapName.EAGER_MODE, False, case("vllm")),
    (TrapName.EAGER_MODE, False, case("sglang")),
    (TrapName.MEMORY_SHARE, True, case("sglang", "", "mem_fraction_static = 0.96")),
    (TrapName.MEMORY_SHARE, False, case("sglang")),
    (TrapName.MEMORY_SHARE, False, case("vllm", "gpus = []", "gpu_memory_utilization = 0.95")),
    (TrapName.CUSTOM_ALL_REDUCE, False, case("vllm", on=TWO_3090)),
    (
        TrapName.CUSTOM_ALL_REDUCE,
        False,
        case("vllm", "", "tensor_parallel = 2", on=gpus(UNTOLD, UNTOLD)),
    ),
    (
        TrapName.NCCL_P2P_OFF,
        False,
        case("vllm", "env = { NCCL_P2P_DISABLE = '0' }", "tensor_parallel = 2", on=TWO_3090),
    ),
    (TrapName.REASONING_PARSER, True, case("sglang", "thinking = 'on'")),
    (
        TrapName.REASONING_PARSER,
        False,
        case("vllm", "", "reasoning_parser = 'qwen3'", traits=HYBRID),
    ),
    (TrapName.REASONING_PARSER, False, case("vllm")),
    (TrapName.PARSER_WITHOUT_THINKING, False, case("vllm", "thinking = 'off'")),
    (
        TrapName.PARSER_WITHOUT_THINKING,
        False,
        case("sglang", "thinking = 'off'", "reasoning_parser = 'qwen3'"),
    ),
    (TrapName.PARALLEL_UNSET, False, case("vllm", traits=ModelTraits(family="qwen3"))),
    (TrapName.FP8_EMULATED, True, case("vllm", "", "quantization = 'fp8'", on=TWO_3090)),
    (
        TrapName.FP8_EMULATED,
        False,
        case("vllm", "", "quantization = 'awq'", TWO_3090, traits=ModelTraits(quantisation="fp8")),
    ),
    (
        TrapName.FP8_CACHE_OF_CHECKPOINT,
        True,
        case("vllm", "kv = 'auto'", traits=ModelTraits(cache_type="fp8")),
    ),
    (
        TrapName.MARLIN_ATOMIC_ADD,
        False,
        case("vllm", "gpus = []", traits=ModelTraits(quantisation="auto-round")),
    ),
    (TrapName.IDLE_GPUS, True, case("vllm", "gpus = [0, 1]", on=TWO_3090)),
    (TrapName.IDLE_GPUS, False, case("vllm", "gpus = [0]", on=TWO_3090)),
    (TrapName.IDLE_GPUS, False, case("vllm", on=gpus(RTX_3090))),
    (
        TrapName.MTP_TOO_LONG,
        True,
        case("llama-server", "speculative = { method = 'mtp', tokens = 5 }"),
    ),
    (
        TrapName.MTP_TOO_LONG,
        False,
        case("llama-server", "speculative = { method = 'mtp', tokens = 5, model = '/d.gguf' }"),
    ),
    (TrapName.MTP_TOO_LONG, False, case("command")),
    (
        TrapName.MTP_TOO_LONG,
        False,
        case("llama-server", "speculative = { method = 'ngram', ngram = { tokens = 48 } }"),
    ),
    (
        TrapName.MTP_TOO_LONG,
        False,
        case("vllm", "speculative = { method = 'ngram', tokens = 8 }"),
    ),
    (TrapName.NO_MTP_WEIGHTS, True, case("vllm", MTP, traits=ModelTraits(drafts=False))),
    (TrapName.NO_MTP_WEIGHTS, False, case("vllm", traits=ModelTraits(drafts=False))),
    (TrapName.RAISED_PRIORITY, True, case("llama-server", "extra_args = ['--prio', '2']")),
    (TrapName.RAISED_PRIORITY, False, case("llama-server", "extra_args = ['--prio', '0']")),
    (TrapName.PINNED_CPUS, False, case("vllm")),
    (
        TrapName.MEMLOCK_LIMIT,
        False,
        case("llama-server", "unit = { Service = { LimitMEMLOCK = '8G' } }"),
    ),
    (TrapName.VRAM_TOO_SMALL, True, case("vllm", "need = { vram = '30GiB' }", on=gpus(RTX_3090))),
    (TrapName.VRAM_TOO_SMALL, False, case("vllm", on=gpus(RTX_3090))),
    (TrapName.VRAM_TOO_SMALL, False, case("llama-server", on=LOST, look=gguf(20))),
    (TrapName.VRAM_TOO_SMALL, True, case("llama-server", "gpus = [0]", "", LOST, look=gguf(20))),
    (TrapName.RAM_TOO_SMALL, False, case("llama-server", "gpus = []", look=gguf(40))),
    (TrapName.UNLOCKED_WEIGHTS, False, case("llama-server", "gpus = []", look=gguf(4), ram_gib=32)),
]


def found_in(one: Case) -> Sequence[str]:
    return names(linted(facts(one.engine, one.keys, one.table, **one.more), one.on))


@pytest.mark.parametrize("name", TrapName)
def test_a_trap_fires_and_its_neighbour_does_not(name: TrapName) -> None:
    """Each trap has a profile that it is told of, and one like it that it is not told of."""
    there, near = CASES[name]
    assert name in found_in(there)
    assert name not in found_in(near)


@pytest.mark.parametrize(("name", "fires", "one"), OTHERS)
def test_further_profiles(name: TrapName, one: Case, *, fires: bool) -> None:
    """Other forms of a trap are told, and what only looks like one is not."""
    assert (name in found_in(one)) is fires


def test_every_name_has_one_trap() -> None:
    """A name is that of one trap, or of one that is gone."""
    kept = [trap.name for trap in TRAPS]
    assert sorted(kept) == sorted(set(TrapName) - RETIRED.keys())
    assert len(kept) == len(set(kept))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_a_trap_is_documented(trap: Any) -> None:
    """Each has a source, the day of the last look, keys and an engine."""
    assert trap.source
    assert trap.keys
    assert len(trap.checked) == len("2026-11-25")
    assert any(issubclass(engine.options, trap.options) for engine in ENGINES.values())
    assert not trap.statement.endswith(".")


def test_a_warning_says_what_is_wrong_where_and_what_to_change() -> None:
    """The sentence of apply and validate has the trap's name, what is there, the builds and the advice."""
    one = facts("llama-server", "kv = 'q4_0'")
    (sprung,) = [s for s in profile_traps(one) if s.trap.name is TrapName.Q4_0_CACHE_ON_BLACKWELL]
    assert warning_of(sprung) == (
        "trap q4-0-cache-on-blackwell: answers are garbled after some tokens with a q4_0 cache"
        " (builds from b9175 until before b9867); here kv is q4_0: use q8_0, or another build"
    )

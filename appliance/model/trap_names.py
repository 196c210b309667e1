"""Names of the traps that `appliance profile lint` knows. A name is never used for another trap."""

from enum import StrEnum


class TrapName(StrEnum):
    """Name of a trap, as a profile names it in ``allow_traps``.

    A trap that no build has any more keeps its name here, so that profiles with it stay valid, and is moved
    to `appliance.profiles.linting.lint.RETIRED`.
    """

    ASYMMETRIC_KV = "asymmetric-kv"
    AWQ_ON_BLACKWELL = "awq-on-blackwell"
    CACHE_TYPE_ON_CPU = "cache-type-on-cpu"
    CUSTOM_ALL_REDUCE = "custom-all-reduce"
    DENSE_FIRST_LAYERS = "dense-first-layers"
    EAGER_MODE = "eager-mode"
    EMBEDDING_UBATCH = "embedding-ubatch"
    FP8_CACHE_OF_CHECKPOINT = "fp8-cache-of-checkpoint"
    FP8_EMULATED = "fp8-emulated"
    IDLE_GPUS = "idle-gpus"
    MAPPED_EXPERTS = "mapped-experts"
    MARLIN_ATOMIC_ADD = "marlin-atomic-add"
    MEMLOCK_LIMIT = "memlock-limit"
    MEMORY_SHARE = "memory-share"
    MISSING_UNIT = "missing-unit"
    MTP_TOO_LONG = "mtp-too-long"
    NATIVE_FP4_Q4_K_M = "native-fp4-q4-k-m"
    NCCL_P2P_OFF = "nccl-p2p-off"
    NO_MTP_WEIGHTS = "no-mtp-weights"
    PARALLEL_UNSET = "parallel-unset"
    PARSER_WITHOUT_THINKING = "parser-without-thinking"
    PINNED_CPUS = "pinned-cpus"
    PROMPT_CACHE = "prompt-cache"
    Q4_0_CACHE_ON_BLACKWELL = "q4-0-cache-on-blackwell"
    QUANTISED_V_WITHOUT_FLASH_ATTENTION = "quantised-v-without-flash-attention"
    RAISED_PRIORITY = "raised-priority"
    RAM_TOO_SMALL = "ram-too-small"
    REASONING_PARSER = "reasoning-parser"
    SHARED_CPUS = "shared-cpus"
    UNCHECKED_PATCH = "unchecked-patch"
    UNEVEN_EXPERTS = "uneven-experts"
    UNLOCKED_WEIGHTS = "unlocked-weights"
    VRAM_TOO_SMALL = "vram-too-small"

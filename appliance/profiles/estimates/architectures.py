"""Architectures whose memory under llama.cpp follows the rules of `layers`, and what their loaders assume.

From ``LLM_ARCH_NAMES`` and the loaders in src/models/ of llama.cpp, build b11549. Another architecture may
keep something that no rule here counts, or keep less: its estimate is labelled, and refuses by the
weights alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


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

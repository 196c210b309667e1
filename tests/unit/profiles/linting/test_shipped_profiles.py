"""No shipped profile has a trap on the hardware that it is for; a change for the worse has one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.model.model_headers import ModelTraits
from appliance.profiles.linting.trap import GpuFacts
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.trap_samples import (
    RTX_3090,
    RTX_4090,
    RTX_5060_TI,
    gpus,
    linted,
    names,
    profile_facts,
    shipped,
)

PROFILES = Path(__file__).parents[4] / "profiles"


@dataclass(frozen=True, slots=True)
class Home:
    """Box that a profile is for, and the traits of its model."""

    on: GpuFacts | None = None
    traits: ModelTraits | None = None
    ram_gib: int = 32


TWO_16 = gpus(RTX_5060_TI, RTX_5060_TI)
ONE_16, ONE_24 = gpus(RTX_5060_TI), gpus(RTX_4090)
Q4_K_M = ModelTraits(quantisation="q4_k_m", drafts=False)
QWEN_27B = ModelTraits(family="qwen3_5", is_hybrid=True, drafts=True, quantisation="auto-round")
HOMES: Mapping[str, Home] = {
    "aeon": Home(
        TWO_16, ModelTraits(family="qwen3_5", is_hybrid=True, drafts=True, quantisation="nvfp4")
    ),
    "coder4": Home(
        gpus(RTX_3090, RTX_3090), ModelTraits(family="qwen3_moe", quantisation="awq", drafts=False)
    ),
    "embeddings": Home(),
    "gemma-1gpu": Home(TWO_16, Q4_K_M),
    "gemma-2gpu": Home(TWO_16, Q4_K_M),
    "gemma-4-26b-vision": Home(ONE_24, Q4_K_M),
    "gemma-cpu": Home(),
    "genesis": Home(TWO_16, QWEN_27B),
    "genesis-current": Home(TWO_16, QWEN_27B),
    "glm-4.7-flash": Home(ONE_24, ModelTraits(quantisation="q4_k_m", drafts=True, dense_layers=1)),
    "gpt-oss-120b": Home(ONE_16, ModelTraits(drafts=False), 64),
    "gpt-oss-20b": Home(ONE_16, ModelTraits(drafts=False)),
    "qwen3-4b-cpu": Home(ram_gib=8),
    "qwen3-coder-sglang": Home(
        gpus(RTX_3090, RTX_3090), ModelTraits(family="qwen3_moe", quantisation="awq")
    ),
    "qwen3.6-27b-2x24gb": Home(
        gpus(RTX_4090, RTX_4090),
        ModelTraits(family="qwen3_5", is_hybrid=True, drafts=True, quantisation="fp8"),
    ),
    "qwen3.6-27b-mtp": Home(ONE_24, ModelTraits(quantisation="q4_k_m", drafts=True)),
    "qwen3.6-35b-16gb": Home(ONE_16, Q4_K_M),
    "qwen3.6-35b-24gb": Home(ONE_24, Q4_K_M),
    "rerank": Home(),
    "smol": Home(ram_gib=2),
    "smol-long": Home(ram_gib=2),
}


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_profile_has_no_trap_on_its_hardware(path: Path) -> None:
    """On the box that its description names, with its model, a shipped profile is without traps."""
    home = HOMES[path.stem]
    found = linted(shipped(path, traits=home.traits, ram_gib=home.ram_gib), home.on)
    assert names(found) == []
    assert (found.unchecked, found.allowed) == ((), ())


@pytest.mark.parametrize(
    ("name", "before", "after", "trap"),
    [
        ("aeon", "parallel    = 2 ", "#", "parallel-unset"),
        ("aeon", "tokens = 3", "tokens = 4", "mtp-too-long"),
        ("coder4", "disable_custom_all_reduce = true", "#", "custom-all-reduce"),
        ("gemma-1gpu", 'kv     = "q8_0"', 'kv = { k = "q8_0", v = "q4_0" }', "asymmetric-kv"),
        ("gemma-1gpu", 'load_mode   = "none"', "#", "mapped-experts"),
        ("genesis", "expect   =", "#", "unchecked-patch"),
        ("genesis-current", "VLLM_MARLIN_USE_ATOMIC_ADD", "OTHER", "marlin-atomic-add"),
        ("gpt-oss-120b", 'cache_ram  = "2GiB"', "#", "prompt-cache"),
        ("rerank", "ubatch    = 4096", "#", "embedding-ubatch"),
    ],
)
def test_a_change_for_the_worse_is_told(name: str, before: str, after: str, trap: str) -> None:
    """A setting that a shipped profile has for a reason is told by the lint when it goes."""
    text = (PROFILES / f"{name}.toml").read_text()
    assert before in text
    home = HOMES[name]
    profile = parse_profile(name, text.replace(before, after, 1).encode())
    found = linted(profile_facts(profile, traits=home.traits, ram_gib=home.ram_gib), home.on)
    assert names(found) == [trap]


def test_a_shipped_profile_on_other_hardware_is_told() -> None:
    """A profile that is copied to GPUs that it is not for is told of what they lack."""
    home = HOMES["qwen3.6-27b-2x24gb"]
    one = shipped(PROFILES / "qwen3.6-27b-2x24gb.toml", traits=home.traits)
    assert names(linted(one, gpus(RTX_3090, RTX_3090))) == ["custom-all-reduce", "fp8-emulated"]
    one = shipped(PROFILES / "coder4.toml", traits=HOMES["coder4"].traits)
    assert names(linted(one, TWO_16)) == ["vram-too-small", "awq-on-blackwell"]

"""Lint of one profile: builds, GPUs that cannot be read, traps that the profile allows, and traps that none can have."""

from collections.abc import Callable, Mapping

import pytest

from appliance.model.engine_build import EngineBuild, spelled
from appliance.model.model_headers import ModelTraits
from appliance.model.trap_names import TrapName
from appliance.profiles.linting.lint import (
    PREVENTED,
    PreventedTrap,
    known_version,
    lint,
    needs_gpus,
    profile_traps,
    unchecked_sentence,
)
from appliance.switch.units.backend_unit import render
from appliance.system.profile_files.loading import profile_faults
from tests.fakes.profile_texts import MINIMAL
from tests.fakes.trap_samples import (
    RTX_3090,
    RTX_4090,
    RTX_5060_TI,
    facts,
    gpus,
    linted,
    names,
    spec_of_profile,
)
from tests.fakes.unit_specs import LAYOUT

FP8 = ModelTraits(quantisation="fp8")


def test_a_build_outside_the_range_has_no_trap() -> None:
    """A build that is known to be newer is not warned of; one that is not known is, and told so."""
    blackwell = gpus(RTX_5060_TI)
    for version, certain in (("b9333 (35c9b1f39)", True), (None, False), ("main", False)):
        found = linted(facts("llama-server", "kv = 'q4_0'", version=version), blackwell)
        assert [(s.trap.name, s.is_certain) for s in found.sprung] == [
            (TrapName.Q4_0_CACHE_ON_BLACKWELL, certain)
        ]
    newer = facts("llama-server", "kv = 'q4_0'", version="b10621 (c1d0e7a00)")
    assert linted(newer, blackwell).sprung == ()


def test_gpus_that_cannot_be_read_leave_traps_unchecked() -> None:
    """Only the traps that the GPUs would decide about are told as not checked; others are told as ever."""
    one = facts("vllm", "gpus = [0]\n", "enforce_eager = true", traits=FP8)
    found = linted(one, None)
    assert names(found) == ["eager-mode"]
    assert found.unchecked == (TrapName.FP8_EMULATED,)
    assert names(linted(one, gpus(RTX_3090))) == ["eager-mode", "fp8-emulated"]
    assert linted(one, gpus(RTX_4090)).unchecked == ()


def test_gpus_are_wanted_only_where_they_decide() -> None:
    """A profile without a trap of GPUs needs no look at them."""
    assert not needs_gpus(profile_traps(facts("vllm", "gpus = []", "enforce_eager = true")))
    assert needs_gpus(profile_traps(facts("vllm", traits=FP8)))


def test_only_the_gpus_of_the_profile_count() -> None:
    """A card that the profile does not use makes no trap, and the detail names the one that does."""
    box = gpus(RTX_4090, RTX_3090)
    assert names(linted(facts("vllm", "gpus = [0]", traits=FP8), box)) == []
    (sprung,) = linted(facts("vllm", "gpus = [1]", traits=FP8), box).sprung
    assert sprung.detail == (
        "the model's weights are FP8, GPU 1 is NVIDIA GeForce RTX 3090, compute capability 8.6"
    )


def test_a_trap_on_purpose_is_allowed() -> None:
    """A trap that the profile names is not told; without GPUs it is not told as unchecked either."""
    keys = "allow_traps = ['fp8-emulated', 'eager-mode']"
    one = facts("vllm", f"gpus = [0]\n{keys}", "enforce_eager = true", traits=FP8)
    found = linted(one, gpus(RTX_3090))
    assert (found.sprung, found.unchecked, found.notes) == ((), (), ())
    assert found.allowed == (TrapName.EAGER_MODE, TrapName.FP8_EMULATED)
    assert linted(one, None).unchecked == ()


def test_a_name_that_is_no_trap_is_a_fault() -> None:
    """A misspelt name would silence nothing: it is told with the nearest one."""
    text = f"allow_traps = ['asymetric-kv']\n{MINIMAL['llama-server']}"
    (fault,) = profile_faults("p", text.encode())
    assert fault.line == 1
    assert 'did you mean "asymmetric-kv"?' in fault.text


def test_a_name_that_is_retired_is_only_told() -> None:
    """A trap that is gone leaves the profile valid, with a note that says why."""
    one = facts("vllm", "allow_traps = ['eager-mode']", "enforce_eager = true")
    retired = {TrapName.EAGER_MODE: "vLLM 0.40 has graphs everywhere"}
    found = lint(one, (), None, retired)
    assert found.notes == (
        'allow_traps: "eager-mode" is a trap no more (vLLM 0.40 has graphs everywhere): remove it',
    )


def test_a_long_detail_is_cut() -> None:
    """A detail that comes from a file is printable and short."""
    one = facts("vllm", missing_units=("x\x1b" * 1000,))
    (sprung,) = [s for s in profile_traps(one) if s.trap.name is TrapName.MISSING_UNIT]
    assert len(sprung.detail) == 301
    assert sprung.detail.isprintable()


@pytest.mark.parametrize(
    ("build", "version"),
    [(None, None), (EngineBuild(), None), (EngineBuild(version="b1"), "b1")],
)
def test_a_version_may_not_be_known(build: EngineBuild | None, version: str | None) -> None:
    """A build without a version is as one that nobody asked."""
    assert known_version(build) == version


def test_the_reason_of_what_is_not_checked_is_told() -> None:
    """The sentence names the traps and why the GPUs were not read."""
    found = unchecked_sentence([TrapName.IDLE_GPUS, TrapName.FP8_EMULATED], "the GPU driver hangs")
    assert found == "not checked: idle-gpus and fp8-emulated: the GPU driver hangs"


def command(engine: str, keys: str = "", table: str = "") -> str:
    """The engine's command in its newest spelling."""
    return f" {' '.join(spelled(spec_of_profile(engine, keys, table).invocation.argv, None))} "


def unit(engine: str, keys: str = "", table: str = "") -> str:
    """The rendered unit."""
    (text,) = render([spec_of_profile(engine, keys, table)], [], LAYOUT).values()
    return text


def refusal(engine: str, keys: str = "", table: str = "") -> str:
    """Faults of a profile."""
    text = f"{keys}\n{MINIMAL[engine]}" + (f"[{engine}]\n{table}" if table else "")
    return "\n".join(fault.text for fault in profile_faults("p", text.encode()))


def stripped(engine: str, keys: str) -> str:
    """Request parameters that the gateway takes out."""
    return " ".join(spec_of_profile(engine, keys).applied.handling.strip_parameters)


PROOFS: Mapping[str, Callable[[], bool]] = {
    "fitting": lambda: all(
        words in command("llama-server", "ctx = 4096")
        for words in (" --fit off ", " --ctx-size 4096 ", " --gpu-layers all ")
    ),
    "cors": lambda: (
        " --cors-origins http://127.0.0.1:8100 --no-cors-credentials " in command("llama-server")
        and " --allowed-origins [] " in command("vllm")
    ),
    "tool-choice": lambda: (
        " --enable-auto-tool-choice --tool-call-parser hermes "
        in command("vllm", "tool_parser = 'hermes'")
    ),
    "memlock": lambda: "\nLimitMEMLOCK=infinity\n" in unit("llama-server", "", "mlock = true"),
    "divided-context": lambda: (
        " --ctx-size 8192 --parallel 2 " in command("llama-server", "ctx = 4096\nparallel = 2")
    ),
    "clamped-ubatch": lambda: "would clamp it" in refusal("llama-server", "", "ubatch = 4096"),
    "renamed-options": lambda: (
        "+either --load-mode mmap+mlock +or --mlock +end"
        in unit("llama-server", "", "mlock = true")
    ),
    "files-of-options": lambda: all(
        line in unit("llama-server").splitlines()
        for line in (
            "InaccessiblePaths=-/etc/llama.cpp",
            "Environment=XDG_CONFIG_HOME=/nonexistent",
        )
    ),
    "exposed-port": lambda: (
        " --host 127.0.0.1 --port 8101 " in command("vllm")
        and "\nIPAddressDeny=any\nIPAddressAllow=localhost\n" in unit("vllm")
        and refusal("vllm", "extra_args = ['--host', '0.0.0.0']") != ""
    ),
    "two-owners": lambda: (
        "[Install]" not in unit("vllm") and "\nConflicts=appliance-hold.service\n" in unit("vllm")
    ),
    "late-release": lambda: (
        "\nExecCondition=+/opt/appliance/current/bin/appliance-gate --name p " in unit("vllm")
    ),
    "left-workers": lambda: "\nKillMode=mixed\n" in unit("vllm"),
    "thinking-undone": lambda: (
        "reasoning_budget_tokens" in stripped("llama-server", "thinking = 'off'")
    ),
    "sixteen-bit-cache": lambda: (
        " --kv-cache-dtype float16 " in command("vllm", "kv = 'f16'", "dtype = 'float16'")
        and "only for a model that runs in that type" in refusal("vllm", "kv = 'f16'")
    ),
    "gpu-numbers": lambda: all(
        line in unit("vllm", "gpus = [1]").splitlines()
        for line in (
            "Environment=CUDA_DEVICE_ORDER=PCI_BUS_ID",
            "Environment=CUDA_VISIBLE_DEVICES=1",
        )
    ),
    "four-slots": lambda: " --parallel 1 " in command("llama-server"),
}


@pytest.mark.parametrize("trap", PREVENTED, ids=lambda trap: trap.name)
def test_a_trap_is_impossible(trap: PreventedTrap) -> None:
    """The reference says of a trap what a unit has, or what refuses a profile."""
    assert PROOFS[trap.name]()


def test_nothing_else_is_proved() -> None:
    """Each proof is that of one row."""
    assert sorted(PROOFS) == sorted(trap.name for trap in PREVENTED)

"""Each trap that is called impossible is prevented by the rendered command or unit, or refused."""

from collections.abc import Callable, Mapping

import pytest

from appliance.model.engine_build import spelled
from appliance.profiles.linting.prevented_traps import PREVENTED, PreventedTrap
from appliance.switch.units.backend_unit import render
from appliance.system.profile_files.loading import profile_faults
from tests.fakes.profile_texts import MINIMAL
from tests.fakes.trap_samples import spec_of_profile
from tests.fakes.unit_specs import LAYOUT


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

"""Traps of engines that no profile can have, because of what the appliance renders or refuses.

They are told in the reference, so that nobody looks for them. A test ties each to the rendered command or unit.
"""

from dataclasses import dataclass
from typing import Final

from appliance.profiles.linting.trap_sources import BENCHMARK, FIELD


@dataclass(frozen=True, slots=True, kw_only=True)
class PreventedTrap:
    """Trap that the appliance makes impossible."""

    name: str
    """Name in the style of `TrapName`, for the test."""
    statement: str
    prevented_by: str
    source: str


PREVENTED: Final = (
    PreventedTrap(
        name="fitting",
        statement="llama.cpp fits context and layers to the VRAM that is free: after a late release it serves less than"
        " was configured, without a word",
        prevented_by="`--fit off`, with `--ctx-size` and `--gpu-layers` always given",
        source="llama.cpp `--fit`, on by default since December 2025",
    ),
    PreventedTrap(
        name="cors",
        statement="engines answer any origin, with credentials, so that any page in a browser reaches them",
        prevented_by="`--cors-origins` with the server's own origin and `--no-cors-credentials` (llama-server, from July"
        " 2026 on), `--allowed-origins []` (vLLM); the gateway's own rule for the rest",
        source="llama.cpp pull request #25655; vLLM `--allowed-origins`",
    ),
    PreventedTrap(
        name="tool-choice",
        statement="a parser of tool calls does nothing without the automatic choice of tools",
        prevented_by="`tool_parser` writes `--enable-auto-tool-choice` too (vLLM)",
        source=BENCHMARK,
    ),
    PreventedTrap(
        name="memlock",
        statement="weights cannot be locked beyond the unit's limit, and go to swap",
        prevented_by="`LimitMEMLOCK=infinity` in every unit; a lower one is the trap memlock-limit",
        source=FIELD,
    ),
    PreventedTrap(
        name="divided-context",
        statement="`--parallel 2` halves the context of each request unless the cache is unified",
        prevented_by="`ctx` is what one request may use: `--ctx-size` is `ctx` times `parallel`",
        source="llama.cpp `--parallel`, `--kv-unified`",
    ),
    PreventedTrap(
        name="clamped-ubatch",
        statement="a physical batch above the logical one is clamped to it without a word",
        prevented_by="the profile is refused: `ubatch` above `batch`",
        source="llama.cpp `llama_context`",
    ),
    PreventedTrap(
        name="renamed-options",
        statement="`--mlock` and `--no-mmap` became `--load-mode`, and a build knows one of them",
        prevented_by="both spellings are in the unit, and the build is asked which one it has",
        source="llama.cpp pull request #20834 (b10114)",
    ),
    PreventedTrap(
        name="files-of-options",
        statement="llama-server reads options from `/etc/llama.cpp/config.ini` and from `XDG_CONFIG_HOME`",
        prevented_by="`InaccessiblePaths=-/etc/llama.cpp` and `XDG_CONFIG_HOME=/nonexistent`",
        source="llama.cpp pull request #26118",
    ),
    PreventedTrap(
        name="exposed-port",
        statement="an engine listens on all interfaces, and a change of the network exposes it",
        prevented_by="`--host 127.0.0.1`, and `IPAddressDeny=any` except loopback",
        source=f"{FIELD}; {BENCHMARK}",
    ),
    PreventedTrap(
        name="two-owners",
        statement="two enabled units start after a reboot, and neither gets enough memory",
        prevented_by="no `[Install]` in a unit, `Conflicts=` among rivals, and the gate before every start",
        source=FIELD,
    ),
    PreventedTrap(
        name="late-release",
        statement="the next engine starts before the memory of the last one is free",
        prevented_by="the gate (`ExecCondition=`) waits until the memory is there",
        source=FIELD,
    ),
    PreventedTrap(
        name="left-workers",
        statement="workers of vLLM outlive the process that is killed, and keep the memory",
        prevented_by="`KillMode=mixed`: a stop ends with an empty control group",
        source="vLLM, EngineCore",
    ),
    PreventedTrap(
        name="thinking-undone",
        statement="a request turns thinking on again, by its own budget or variables of the template",
        prevented_by="with `thinking` the server decides, and the gateway removes the parameters",
        source=f"{FIELD}; llama.cpp server-common.cpp (`reasoning_budget_tokens`)",
    ),
    PreventedTrap(
        name="sixteen-bit-cache",
        statement="a cache of sixteen bits is written as `auto`, which takes FP8 from a checkpoint",
        prevented_by='`kv = "f16"` is `float16`, and refused unless `dtype` says the same (vLLM)',
        source="vLLM `--kv-cache-dtype auto`",
    ),
    PreventedTrap(
        name="gpu-numbers",
        statement="CUDA numbers GPUs by speed, nvidia-smi by their slots: the model starts on the wrong card",
        prevented_by="`CUDA_DEVICE_ORDER=PCI_BUS_ID` with `CUDA_VISIBLE_DEVICES`",
        source="CUDA, environment variables",
    ),
    PreventedTrap(
        name="four-slots",
        statement="llama-server divides itself into several slots unless it is told how many",
        prevented_by="`--parallel 1` where `parallel` is unset",
        source="llama.cpp `--parallel` (-1: automatic)",
    ),
)

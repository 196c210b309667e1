"""Programs around a model server: each is taken off, and what it did is kept or told."""

import pytest

from appliance.profiles.foreign.server_command import Argument, DispositionKind, ServerCommand
from tests.fakes.imports import fates, imported, one_draft, values

LLAMA = "/opt/llama-server -m /m/x.gguf"
VLLM = "vllm serve a/b"


@pytest.mark.parametrize(
    "prefix",
    [
        "exec",
        "exec -a name",
        "nohup",
        "time",
        "setsid --",
        "stdbuf -o L",
        "ionice -c 2 -n 0",
        "env -u A B=c",
        "sudo -u ana -E X=1",
        "sudo",
        "uv run",
        "uv run --with x",
        "poetry run",
        "conda run -n vllm",
        "nice",
        "nice -n 5",
        "nice -5",
        "nice --adjustment=5",
        "taskset -c 0-3",
        "taskset ff",
        "numactl --interleave=0,1",
        "numactl --preferred 0",
        "tini --",
        "sh -c '/opt/llama-server -m /m/x.gguf' #",
        "bash -lc 'cd /m && exec /opt/llama-server -m x.gguf' #",
    ],
)
def test_launchers_are_taken_off(prefix: str) -> None:
    """A server is found behind the programs that start it."""
    assert values(one_draft(f"{prefix} {LLAMA}"))["model"] == "/m/x.gguf"


@pytest.mark.parametrize(
    ("prefix", "unit"),
    [
        ("nice", {"unit.Service.Nice": "10"}),
        ("nice -n 5", {"unit.Service.Nice": "5"}),
        ("nice -5", {"unit.Service.Nice": "5"}),
        ("taskset -c 0-3", {"unit.Service.CPUAffinity": "0-3"}),
        ("numactl -C 0-3", {"unit.Service.CPUAffinity": "0-3"}),
        ("numactl -m 0", {"unit.Service.NUMAPolicy": "bind", "unit.Service.NUMAMask": "0"}),
        (
            "numactl -i 0,1",
            {"unit.Service.NUMAPolicy": "interleave", "unit.Service.NUMAMask": "0,1"},
        ),
        (
            "numactl --preferred=1",
            {"unit.Service.NUMAPolicy": "preferred", "unit.Service.NUMAMask": "1"},
        ),
    ],
)
def test_what_launchers_set_becomes_the_unit(prefix: str, unit: dict[str, str]) -> None:
    """Priorities, CPUs and memory nodes become settings of the unit."""
    keys = values(one_draft(f"{prefix} {LLAMA}"))
    assert {k: v for k, v in keys.items() if k.startswith("unit.")} == unit


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        ("taskset ff", "taskset ff"),
        ("taskset -c all", "taskset -c all"),
        ("numactl -N 0", "numactl -N 0"),
        ("numactl --all", "numactl --all"),
        ("sudo", "sudo"),
    ],
)
def test_what_launchers_set_in_vain_is_told(prefix: str, text: str) -> None:
    """Settings that a unit cannot have are told."""
    assert text in fates(one_draft(f"{prefix} {LLAMA}"), DispositionKind.DROPPED)


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("llama-server-cuda -m /m/x", "llama-server"),
        ("vllm serve a/b", "vllm"),
        ("python3 -u -m vllm.entrypoints.openai.api_server --model a/b", "vllm"),
        ("python -m vllm.entrypoints.cli.main serve a/b", "vllm"),
        ("python -m sglang.launch_server --model-path a/b", "sglang"),
        ("sglang serve --model-path a/b", "sglang"),
        ("ollama serve", "command"),
        ("ollama start", "command"),
        ("docker run vllm/vllm-openai --model a/b", "vllm"),
        ("docker run vllm/vllm-openai a/b", "vllm"),
        ("docker run vllm/vllm-openai serve a/b", "vllm"),
        ("podman run -it quay.io/x/vllm:1 vllm serve a/b", "vllm"),
        ("docker run lmsysorg/sglang --model-path a/b", "sglang"),
        ("docker run -v /m:/m ghcr.io/ggml-org/llama.cpp:full --server -m /m/x", "llama-server"),
        ("docker run ollama/ollama", "command"),
        ("docker container run --entrypoint vllm img serve a/b", "vllm"),
        ("docker -H x run --entrypoint= vllm/vllm-openai --model a/b", "vllm"),
        ("docker run --entrypoint bash vllm/vllm-openai -c 'x; vllm serve a/b'", "vllm"),
        ("docker run lmsysorg/sglang env A=b sglang serve --model-path a/b", "sglang"),
    ],
)
def test_servers_are_recognised(command: str, engine: str) -> None:
    """Each way to start a server that people use is known."""
    assert values(one_draft(command))["engine"] == engine


@pytest.mark.parametrize(
    "command",
    [
        "vllm bench serve",
        "python app.py",
        "python -m http.server",
        "python -m vllm",
        "python -u",
        "docker pull vllm/vllm-openai",
        "docker",
        "docker run lmsysorg/sglang bash",
        "docker run lmsysorg/sglang nvidia-smi",
        "docker run open-webui:main",
        "uv pip install vllm",
        "uv --quiet",
        "uv run --no-sync",
        "env A=b",
        "sudo",
        "bash start.sh",
        "bash",
        "bash -c",
        "bash --norc -i",
        "$CMD -m x",
        "'' x",
    ],
)
def test_other_commands_are_no_servers(command: str) -> None:
    """A command that starts no server is counted, and nothing else."""
    found = imported(command)
    assert (found.drafts, found.refusals, found.others) == ((), (), 1)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("docker run --rm", "run names no image"),
        ('bash -c "$X"', "does not set X"),
        ("env " * 20 + LLAMA, "more than 16 programs start each other"),
        ('sh -c "x \'y"', "is not closed"),
    ],
)
def test_launchers_that_cannot_be_read(command: str, reason: str) -> None:
    """A launcher whose command is not known is refused with its line."""
    (refusal,) = imported(command).refusals
    assert reason in refusal.reason
    assert refusal.origin == "line 1"


def test_a_command_without_words_starts_nothing() -> None:
    """A service without a command and with an unknown image is no server."""
    assert ServerCommand(origin="", argv=(Argument(text="x"),)).image == ""
    found = imported("services:\n  a:\n    build: .\n", "c.yaml")
    assert (found.drafts, found.others) == ((), 1)

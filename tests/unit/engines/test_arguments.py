"""Arguments of an engine's command line, from the keys of a profile."""

import pytest

from appliance.adapters.profile_files.loading import parse_profile
from appliance.domain.spec import Profile
from appliance.engines import ENGINES
from appliance.engines.sglang import SglangOptions
from appliance.engines.shared.engine import InvocationContext, options_of
from tests.fakes.profile_texts import MINIMAL

LLAMA, VLLM, SGLANG = (f"[{name}]\n" for name in ("llama-server", "vllm", "sglang"))


def profile(engine: str, keys: str) -> Profile:
    """The shortest profile of an engine, with more keys."""
    return parse_profile("x", (MINIMAL[engine] + keys).encode())


def added(engine: str, keys: str) -> str:
    """Arguments that `keys` add to those of the shortest profile, in their order."""
    plain, more = (
        ENGINES[engine].invocation(profile(engine, text), InvocationContext()).argv
        for text in ("", keys)
    )
    return " ".join(word for word in more if word not in plain)


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        ("ctx = 4096\n", "4096"),
        ("ctx = 4096\nparallel = 3\n", "12288 3"),
        ("ctx = 4096\nparallel = 3\n[llama-server]\nkv_unified = true\n", "4096 3 --kv-unified"),
        (
            'kv = { k = "q8_0", v = "f16" }\n',
            "--cache-type-k q8_0 --cache-type-v f16",
        ),
        ('thinking = "off"\n', "--reasoning-budget"),
        ('thinking = "on"\n', "--reasoning-budget -1"),
        (
            'speculative = { method = "mtp", tokens = 3 }\n',
            "--spec-type draft-mtp --spec-draft-n-max 3",
        ),
        (
            'speculative = { method = "else", tokens = 3 }\n',
            "--spec-type else --spec-draft-n-max 3",
        ),
        ("gpus = []\n", "--device none"),
        (LLAMA + "gpu_layers = 7\n", "7"),
        (LLAMA + 'cpu_experts = "all"\n', "--cpu-moe"),
        (
            LLAMA + 'cpu_experts = "1-2"\n',
            r"--override-tensor blk\.(1|2)\.ffn_.*_exps\.=CPU",
        ),
        (LLAMA + "tensor_split = [3, 1.5]\n", "--tensor-split 3,1.5"),
        (LLAMA + 'cpus = "0,2,4-9"\ncpu_strict = true\n', "--cpu-mask 3F5 --cpu-strict"),
        (LLAMA + "cpus = [9, 0]\n", "--cpu-mask 201"),
        (LLAMA + "flash_attn = true\n", "--flash-attn on"),
        (LLAMA + 'flash_attn = "auto"\n', "--flash-attn auto"),
        (LLAMA + 'cache_ram = "2GiB"\n', "--cache-ram 2048"),
        (LLAMA + 'cache_ram = "unlimited"\n', "--cache-ram -1"),
        (LLAMA + "mlock = true\n", "--load-mode mmap+mlock"),
        (LLAMA + "mlock = true\nlegacy_options = true\n", "999 --mlock"),
    ],
)
def test_keys_of_llama_server(keys: str, arguments: str) -> None:
    """A context is divided among the slots, layers and experts are placed, builds differ."""
    assert added("llama-server", keys) == arguments


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        ('kv = "f16"\n', "--kv-cache-dtype auto"),
        ('kv = "fp8"\n', "--kv-cache-dtype fp8"),
        ('thinking = "on"\n', '--default-chat-template-kwargs {"enable_thinking":true}'),
        ('tool_parser = "hermes"\n', "--enable-auto-tool-choice --tool-call-parser hermes"),
        (
            'speculative = { method = "mtp", tokens = 3 }\n',
            '--speculative-config {"method":"mtp","num_speculative_tokens":3}',
        ),
        (VLLM + "prefix_caching = true\n", "--enable-prefix-caching"),
        (VLLM + "chunked_prefill = false\n", "--no-enable-chunked-prefill"),
        (VLLM + "enforce_eager = true\n", "--enforce-eager"),
        (VLLM + 'kv_cache_memory_bytes = "1GiB"\n', "--kv-cache-memory-bytes 1073741824"),
    ],
)
def test_keys_of_vllm(keys: str, arguments: str) -> None:
    """A cache of sixteen bits has the model's own type; a parser comes with its switch."""
    assert added("vllm", keys) == arguments


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        ('kv = "fp8"\n', "--kv-cache-dtype fp8_e4m3"),
        (
            'speculative = { method = "mtp", tokens = 3 }\n',
            (
                "--speculative-algorithm NEXTN --speculative-num-steps 3"
                " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
            ),
        ),
        (SGLANG + "chunked_prefill_size = -1\n", "--chunked-prefill-size -1"),
        (SGLANG + "disable_cuda_graph = true\n", "--disable-cuda-graph"),
    ],
)
def test_keys_of_sglang(keys: str, arguments: str) -> None:
    """A chain of drafts has one token more than it has steps."""
    assert added("sglang", keys) == arguments


def test_sglang_is_started_through_a_python_that_has_it() -> None:
    """A binary that is an interpreter runs the module."""
    text = MINIMAL["sglang"].replace("/opt/s", "/opt/s/bin/python3")
    argv = ENGINES["sglang"].invocation(parse_profile("x", text.encode()), InvocationContext()).argv
    assert argv[:3] == ("/opt/s/bin/python3", "-m", "sglang.launch_server")


@pytest.mark.parametrize(
    ("engine", "listens"),
    [
        ("llama-server", "--host /run/x/a.sock"),
        ("vllm", "--uds /run/x/a.sock"),
    ],
)
def test_an_engine_listens_on_a_socket(engine: str, listens: str) -> None:
    """A socket of the profile takes the place of host and port."""
    lines = (line for line in MINIMAL[engine].splitlines() if not line.startswith("port"))
    text = "\n".join([*lines, 'socket = "/run/x/a.sock"\n'])
    argv = ENGINES[engine].invocation(parse_profile("x", text.encode()), InvocationContext()).argv
    assert " ".join(argv).endswith(listens)
    assert "--port" not in argv


def test_an_engine_has_the_options_of_no_other() -> None:
    """The options of a profile are those of its engine; anything else is a mistake in the code."""
    with pytest.raises(TypeError, match="x: vllm has no SglangOptions"):
        options_of(SglangOptions, profile("vllm", ""))

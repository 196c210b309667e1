"""Options of engines, and the keys, extra arguments and reasons that they become."""

import pytest

from appliance.profiles.foreign.server_command import DispositionKind
from tests.fakes.imports import checked, extra_words, fates, one_draft, values

LLAMA = "/opt/llama-server -m /m/x.gguf "
VLLM = "/opt/vllm serve /m/x "
SGLANG = "/opt/sglang serve --model-path /m/x "


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ("-c 32768 -np 2", "ctx", 16384),
        ("-c 32768 -np 2 -kvu", "ctx", 32768),
        ("-c 4096 -c 8192", "ctx", 8192),
        ("-np 4", "parallel", 4),
        ("-ctk q8_0", "kv", {"k": "q8_0", "v": "f16"}),
        ("-ctk q8_0 -ctv q8_0", "kv", "q8_0"),
        ("--cache-type-k q5_1 --cache-type-v q5_0", "kv", {"k": "q5_1", "v": "q5_0"}),
        ("-ngl 99", "llama-server.gpu_layers", "all"),
        ("-ngl -1", "llama-server.gpu_layers", "all"),
        ("-ngl all", "llama-server.gpu_layers", "all"),
        ("-ngl 20", "llama-server.gpu_layers", 20),
        ("-ngl 0", "gpus", []),
        ("-dev CUDA0,CUDA1", "gpus", [0, 1]),
        ("--device none", "gpus", []),
        ("-C 3F5", "llama-server.cpus", "0,2,4-9"),
        ("-Cr 0-7", "llama-server.cpus", "0-7"),
        ("--cpu-strict 1", "llama-server.cpu_strict", True),
        ("-cram -1", "llama-server.cache_ram", "unlimited"),
        ("-cram 0", "llama-server.cache_ram", "0MiB"),
        ("-cram 2048", "llama-server.cache_ram", "2048MiB"),
        ("-fa", "llama-server.flash_attn", True),
        ("-fa off", "llama-server.flash_attn", False),
        ("-fa auto", "llama-server.flash_attn", "auto"),
        ("-ts 3,1", "llama-server.tensor_split", [3.0, 1.0]),
        ("-sm row", "llama-server.split_mode", "row"),
        ("--embedding", "llama-server.embedding", True),
        ("-np 2 --kv-unified", "llama-server.kv_unified", True),
        ("-t 8", "llama-server.threads", 8),
        ("-ub 4096", "llama-server.ubatch", 2048),
        ("-ub 4096 -b 4096", "llama-server.ubatch", 4096),
        ("--mmproj /m/p.gguf", "llama-server.mmproj", "/m/p.gguf"),
        ("--alias a,b --alias c", "served", ["c", "a", "b"]),
        ("--reasoning off", "thinking", "off"),
        ("--reasoning-budget 0", "thinking", "off"),
        ("--reasoning-budget 512", "thinking", {"budget": 512}),
        ("""--chat-template-kwargs '{"enable_thinking": true}'""", "thinking", "on"),
        ("--spec-type draft-mtp", "speculative.method", "draft-mtp"),
        ("--spec-type draft-mtp,ngram-mod", "speculative.method", ["draft-mtp", "ngram-mod"]),
        ("--spec-draft-n-max 3", "speculative.tokens", 3),
        ("--draft 8", "speculative.tokens", 8),
        ("--spec-ngram-mod-n-match 24", "speculative.ngram.match", 24),
        ("-md /m/d.gguf", "speculative.model", "/m/d.gguf"),
        ("-md ./d.gguf", "speculative.model", "/srv/box/d.gguf"),
        ("-hfd a/b", "speculative.model", "hf:a/b"),
        ("-ngld 99", "speculative.gpu_layers", "all"),
        ("-ngld 9", "speculative.gpu_layers", 9),
        ("-devd CUDA1,CUDA0", "speculative.device", ["CUDA1", "CUDA0"]),
        ("-ctkd q8_0 -ctvd q4_0", "speculative.kv", {"k": "q8_0", "v": "q4_0"}),
        ("--temp 0.7", "sampling.temperature", 0.7),
        ("-n 512", "sampling.max_tokens", 512),
        (
            "-ot 'a=CPU,b{1,2}=CPU' -ot c=CPU",
            "llama-server.override_tensor",
            ["a=CPU", "b{1,2}=CPU", "c=CPU"],
        ),
        ("--cpu-moe", "llama-server.cpu_experts", "all"),
        ("--mlock", "llama-server.load_mode", "mmap+mlock"),
        ("--no-mmap", "llama-server.load_mode", "none"),
        ("--mlock --no-mmap", "llama-server.load_mode", "mlock"),
        ("--no-mmap --mlock", "llama-server.load_mode", "mlock"),
        ("-lm dio", "llama-server.load_mode", "dio"),
        ("--direct-io", "llama-server.load_mode", "dio"),
        ("--lora ./a.gguf", "llama-server.lora", ["/srv/box/a.gguf"]),
        ("--no-context-shift", "llama-server.context_shift", False),
        ("""--chat-template-kwargs '{"a": 1}'""", "llama-server.chat_template_kwargs", {"a": 1}),
        (
            """--chat-template-kwargs '{"a": 1, "enable_thinking": false}'""",
            "thinking",
            "off",
        ),
        ("--port 8099", "port", 8099),
        ("--port 80", "port", 8020),
        ("--port 8010", "port", 8011),
    ],
)
def test_keys_of_llama_server(options: str, key: str, value: object) -> None:
    """An option of llama-server becomes the key that says the same."""
    assert values(one_draft(LLAMA + options))[key] == value


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ("--max-model-len 32k", "ctx", 32000),
        ("--max_model_len=32K", "ctx", 32768),
        ("--max-num-seqs 4", "parallel", 4),
        ("--kv-cache-dtype bfloat16", "kv", "bf16"),
        ("--kv-cache-dtype fp8", "kv", "fp8"),
        ("--tensor-parallel-size 2", "vllm.tensor_parallel", 2),
        ("-tp 2", "vllm.tensor_parallel", 2),
        ("--enforce-eager", "vllm.enforce_eager", True),
        ("--no-enable-prefix-caching", "vllm.prefix_caching", False),
        ("--gpu-memory-utilization 0.90", "vllm.gpu_memory_utilization", 0.9),
        ("--kv-cache-memory-bytes 4G", "vllm.kv_cache_memory_bytes", "4GiB"),
        ("--served-model-name a b", "served", ["a", "b"]),
        ("--enable-auto-tool-choice --tool-call-parser hermes", "tool_parser", "hermes"),
        ("--device-ids 0,1", "gpus", [0, 1]),
        ("""--default-chat-template-kwargs '{"enable_thinking": false}'""", "thinking", "off"),
        (
            """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'""",
            "speculative.tokens",
            3,
        ),
        ("""-sc '{"method":"ngram","prompt_lookup_max":4}'""", "speculative.ngram.match", 4),
        ("""-sc '{"model":"a/b"}'""", "speculative.model", "hf:a/b"),
        ("""-sc '{"model":"/m/d","kv_cache_dtype":"fp8"}'""", "speculative.model", "/m/d"),
        ("--spec-tokens 3", "speculative.tokens", 3),
        ("--hf-overrides.a.b 2 --hf-overrides.c x", "vllm.hf_overrides", {"a": {"b": 2}, "c": "x"}),
        (
            """--override-generation-config '{"top_k": 20}'""",
            "vllm.override_generation_config",
            {"top_k": 20},
        ),
        ("--max-num-batched-tokens 8K", "vllm.max_batched_tokens", 8192),
        (
            "--enable-lora --max-lora-rank 64 --lora-modules sql=./sql de=a/b",
            "adapters",
            [
                {"name": "sql", "path": "/srv/box/sql", "rank": 64},
                {"name": "de", "path": "hf:a/b", "rank": 64},
            ],
        ),
        (
            """--lora-modules '{"name": "sql", "path": "/m/sql", "base_model_name": "x"}'""",
            "adapters",
            [{"name": "sql", "path": "/m/sql"}],
        ),
    ],
)
def test_keys_of_vllm(options: str, key: str, value: object) -> None:
    """An option of vLLM becomes the key that says the same."""
    assert values(one_draft(VLLM + options))[key] == value


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ("--tp 2", "sglang.tensor_parallel", 2),
        ("--context-length 4096", "ctx", 4096),
        ("--disable-cuda-graph", "sglang.disable_cuda_graph", True),
        ("--speculative-num-draft-tokens 4", "speculative.tokens", 3),
        ("--speculative-num-steps 5 --speculative-num-draft-tokens 6", "speculative.tokens", 5),
        ("--speculative-algorithm NEXTN", "speculative.method", "NEXTN"),
        ("--served-model-name A", "served", ["A"]),
        ("--lora-paths sql=/m/sql --tp 2", "adapters", [{"name": "sql", "path": "/m/sql"}]),
    ],
)
def test_keys_of_sglang(options: str, key: str, value: object) -> None:
    """An option of SGLang becomes the key that says the same."""
    assert values(one_draft(SGLANG + options))[key] == value


@pytest.mark.parametrize(
    ("command", "option", "outcome", "reason"),
    [
        (LLAMA + "--host 0.0.0.0", "--host 0.0.0.0", DispositionKind.CHANGED, "loopback"),
        (
            LLAMA + "--api-key sk-1",
            "--api-key …",
            DispositionKind.CHANGED,
            "appliance key add NAME",
        ),
        (
            LLAMA + '--api-key "$K"',
            "--api-key …",
            DispositionKind.CHANGED,
            "appliance key add NAME",
        ),
        (
            LLAMA + "--api-key-file /k",
            "--api-key-file /k",
            DispositionKind.CHANGED,
            "appliance key add NAME",
        ),
        (LLAMA + "--metrics", "--metrics", DispositionKind.CHANGED, "metrics are always on"),
        (LLAMA + "--rpc a:1", "--rpc a:1", DispositionKind.DROPPED, "another machine"),
        (LLAMA + "--fit on", "--fit on", DispositionKind.DROPPED, "sizes nothing"),
        (LLAMA + "-c 0", "-c 0", DispositionKind.CHANGED, "ctx unset"),
        (LLAMA + "-np -1", "-np -1", DispositionKind.CHANGED, "parallel unset"),
        (LLAMA + "-ngl auto", "-ngl auto", DispositionKind.CHANGED, "gpu_layers unset"),
        (LLAMA + "-ngl many", "-ngl many", DispositionKind.DROPPED, "gpu_layers"),
        (LLAMA + "-dev FPGA", "-dev FPGA", DispositionKind.DROPPED, "indexes of GPUs"),
        (LLAMA + "-C xyz", "-C xyz", DispositionKind.DROPPED, "cpus"),
        (LLAMA + "-cram much", "-cram much", DispositionKind.DROPPED, "cache_ram"),
        (LLAMA + "-t many", "-t many", DispositionKind.DROPPED, "threads"),
        (LLAMA + "--reasoning maybe", "--reasoning maybe", DispositionKind.DROPPED, "thinking"),
        (LLAMA + "--reasoning auto", "--reasoning auto", DispositionKind.CARRIED, "without it"),
        (LLAMA + "--spec-type none", "--spec-type none", DispositionKind.CARRIED, ""),
        (
            LLAMA + "--spec-draft-n-max x",
            "--spec-draft-n-max x",
            DispositionKind.DROPPED,
            "no number of tokens",
        ),
        (LLAMA + "-c $X", "-c $X", DispositionKind.DROPPED, "does not set X"),
        (LLAMA + "-c 4096 loose", "loose", DispositionKind.DROPPED, "no option"),
        (LLAMA + "--jinja loose", "loose", DispositionKind.DROPPED, "no option"),
        (LLAMA + "-c 4096 $EXTRA", "$EXTRA", DispositionKind.DROPPED, "does not set EXTRA"),
        (LLAMA + "--lora ~bob/x", "--lora ~bob/x", DispositionKind.DROPPED, "unknown directory"),
        (
            LLAMA + "--grammar-file ~bob/x",
            "--grammar-file ~bob/x",
            DispositionKind.DROPPED,
            "unknown directory",
        ),
        (
            LLAMA + "--mmproj ~bob/x",
            "--mmproj ~bob/x",
            DispositionKind.DROPPED,
            "unknown directory",
        ),
        (LLAMA + "-md ~bob/x", "-md ~bob/x", DispositionKind.DROPPED, "unknown directory"),
        (VLLM + "--config x.yaml", "--config x.yaml", DispositionKind.DROPPED, "another file"),
        (
            VLLM + "--lora-modules sql=~bob/sql",
            "--lora-modules sql=~bob/sql",
            DispositionKind.DROPPED,
            "unknown directory",
        ),
        (
            VLLM + "-sc nonsense",
            "-sc nonsense",
            DispositionKind.DROPPED,
            "neither a method nor a model",
        ),
        (VLLM + "-sc '[1]'", "-sc [1]", DispositionKind.DROPPED, "neither a method nor a model"),
        (VLLM + "-sc '{}'", "-sc {}", DispositionKind.DROPPED, "neither a method nor a model"),
        (VLLM + "--hf-overrides x", "--hf-overrides x", DispositionKind.DROPPED, "hf_overrides"),
        (VLLM + "--hf-overrides", "--hf-overrides", DispositionKind.DROPPED, "it has no value"),
        (
            VLLM + "--override-generation-config x",
            "--override-generation-config x",
            DispositionKind.DROPPED,
            "no JSON object",
        ),
        (
            SGLANG + "--speculative-eagle-topk 1",
            "--speculative-eagle-topk 1",
            DispositionKind.CARRIED,
            "one chain",
        ),
        (
            SGLANG + "--speculative-eagle-topk 4",
            "--speculative-eagle-topk 4",
            DispositionKind.DROPPED,
            "one chain",
        ),
        (
            LLAMA + "--chat-template-kwargs x",
            "--chat-template-kwargs x",
            DispositionKind.DROPPED,
            "no JSON object",
        ),
        (LLAMA + "-n -1", "-n -1", DispositionKind.CARRIED, "without it"),
        (
            LLAMA + "--reasoning-budget -1",
            "--reasoning-budget -1",
            DispositionKind.CARRIED,
            "without it",
        ),
        (
            LLAMA + "--reasoning-budget x",
            "--reasoning-budget x",
            DispositionKind.DROPPED,
            "is a number",
        ),
        (LLAMA + "-kvu", "-kvu", DispositionKind.CHANGED, "shares no cache"),
        (LLAMA + "-ngl 0", "-ngl 0", DispositionKind.CHANGED, "without GPUs"),
        (LLAMA + "--mmap", "--mmap", DispositionKind.CARRIED, "without it"),
        (
            VLLM + """-sc '{"method":"mtp","num_speculative_tokens":3,"moe_backend":"x"}'""",
            """-sc {"method":"mtp","num_speculative_tokens":3,"moe_backend":"x"}""",
            DispositionKind.CHANGED,
            "without moe_backend",
        ),
        (
            VLLM + "--max-model-len auto",
            "--max-model-len auto",
            DispositionKind.CHANGED,
            "ctx unset",
        ),
    ],
)
def test_reasons(command: str, option: str, outcome: DispositionKind, reason: str) -> None:
    """An option that no key and no extra argument has is told with its reason."""
    told = fates(one_draft(command), outcome)
    assert reason in told[option]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (LLAMA + "--jinja --tags x", ["--jinja", "--tags", "x"]),
        (LLAMA + "--keep -1 -s .5", ["--keep", "-1", "-s", ".5"]),
        (LLAMA + "--grammar-file ./a.gbnf", ["--grammar-file", "/srv/box/a.gbnf"]),
        (VLLM + "--other-thing.a=b", ["--other-thing.a=b"]),
    ],
)
def test_extra_arguments(command: str, words: list[str]) -> None:
    """An option without a key is an extra argument, with its words as they were."""
    assert extra_words(one_draft(command)) == words


def test_a_value_that_no_file_holds_takes_its_argument_out() -> None:
    """An extra argument with a line break is taken out with the rule's own words."""
    file = checked(LLAMA + "--tags 'a\nb' --keep 4")
    dropped = fates(file.draft, DispositionKind.DROPPED)
    assert "line break" in dropped["--tags a\nb"]
    assert extra_words(file.draft) == ["--keep", "4"]


def test_a_rule_of_the_profile_takes_an_option_out() -> None:
    """An option that the profile's rules refuse is taken out, told with their reason, and the rest is valid."""
    file = checked(
        VLLM + "--tensor-parallel-size 2 --device-ids 0 --kv-cache-dtype odd --dtype half"
    )
    dropped = fates(file.draft, DispositionKind.DROPPED)
    assert "the model is split over 2 GPUs" in dropped["--tensor-parallel-size 2"]
    assert "unknown to vllm" in dropped["--kv-cache-dtype odd"]
    assert 'dtype = "half"' in file.text

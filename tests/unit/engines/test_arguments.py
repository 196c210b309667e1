"""Arguments of an engine's command line, from the keys of a profile."""

import pytest

from appliance.engines import ENGINES
from appliance.engines.sglang import SglangOptions
from appliance.engines.shared.engine import options_of
from appliance.engines.shared.invocation import InvocationContext
from appliance.model.engine_build import EngineBuild, spelled
from appliance.model.spec import Profile
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL

LLAMA, VLLM, SGLANG = (f"[{name}]\n" for name in ("llama-server", "vllm", "sglang"))


def profile(engine: str, keys: str) -> Profile:
    """The shortest profile of an engine, with more keys."""
    return parse_profile("x", (MINIMAL[engine] + keys).encode())


def added(engine: str, keys: str) -> str:
    """Arguments that `keys` add to those of the shortest profile, in their order, for the newest build."""
    plain, more = (
        spelled(ENGINES[engine].invocation(profile(engine, text), InvocationContext()).argv, None)
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
        ('thinking = "on"\n', "--reasoning on"),
        ("thinking = { budget = 2048 }\n", "--reasoning on --reasoning-budget 2048"),
        (
            'speculative = { method = "mtp", tokens = 3 }\n',
            "--spec-type draft-mtp --spec-draft-n-max 3",
        ),
        (
            'speculative = { method = "draft-mtp", tokens = 3 }\n',
            "--spec-type draft-mtp --spec-draft-n-max 3",
        ),
        (
            'speculative = { method = "ngram-simple", tokens = 40, ngram = { match = 9, hits = 2 } }\n',
            (
                "--spec-type ngram-simple --spec-ngram-simple-size-n 9"
                " --spec-ngram-simple-size-m 40 --spec-ngram-simple-min-hits 2"
            ),
        ),
        (
            'speculative = { method = "ngram-mod", tokens = 20 }\n',
            "--spec-type ngram-mod --spec-ngram-mod-n-min 20 --spec-ngram-mod-n-max 20",
        ),
        ('speculative = { method = "ngram-mod" }\n', "--spec-type ngram-mod"),
        (
            'speculative = { method = "ngram-cache", tokens = 5 }\n',
            "--spec-type ngram-cache --spec-draft-n-max 5",
        ),
        (
            (
                'speculative = { method = ["mtp", "ngram-mod"], tokens = 3,'
                " ngram = { tokens = 64, match = 24, min_tokens = 30 } }\n"
            ),
            (
                "--spec-type draft-mtp,ngram-mod --spec-draft-n-max 3 --spec-ngram-mod-n-match 24"
                " --spec-ngram-mod-n-min 30 --spec-ngram-mod-n-max 64"
            ),
        ),
        (
            (
                'speculative = { method = "eagle3", tokens = 3, model = "/d.gguf", gpu_layers = 5,'
                ' device = "CUDA1", kv = "q8_0" }\n'
            ),
            (
                "--spec-draft-type-k q8_0 --spec-draft-type-v q8_0 --spec-type draft-eagle3"
                " --spec-draft-n-max 3 --spec-draft-model /d.gguf --spec-draft-ngl 5"
                " --spec-draft-device CUDA1"
            ),
        ),
        (
            'speculative = { method = "draft", tokens = 8, model = "hf:o/n:Q4" }\n',
            (
                "--spec-type draft-simple --spec-draft-n-max 8 --spec-draft-hf o/n:Q4"
                " --spec-draft-ngl"
            ),
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
        (LLAMA + 'load_mode = "none"\n', "--load-mode none"),
        (LLAMA + "n_cpu_moe = 20\nn_cpu_ffn = 3\n", "--n-cpu-moe 20 --n-cpu-ffn 3"),
        (
            LLAMA + "override_tensor = ['exps=CPU', 'blk\\.1\\.=CUDA1']\n",
            r"--override-tensor exps=CPU --override-tensor blk\.1\.=CUDA1",
        ),
        (LLAMA + "ctx_checkpoints = 5\nswa_full = true\n", "--ctx-checkpoints 5 --swa-full"),
        (LLAMA + "main_gpu = 3\n", "--main-gpu 3"),
        (LLAMA + "kv_offload = false\n", "--no-kv-offload"),
        (LLAMA + "mmproj_auto = false\nop_offload = true\n", "--op-offload --no-mmproj"),
        (
            LLAMA + 'chat_template_kwargs = { preserve_thinking = true, effort = "ä" }\n',
            '--chat-template-kwargs {"preserve_thinking":true,"effort":"\\u00e4"}',
        ),
        (LLAMA + 'reasoning_format = "deepseek"\n', "--reasoning-format deepseek"),
        (LLAMA + 'chat_template = "chatml"\n', "--chat-template chatml"),
        (LLAMA + 'chat_template = "/t.jinja"\n', "--chat-template-file /t.jinja"),
        (LLAMA + 'lora = ["/a", "/b"]\n', "--lora /a,/b"),
        (
            "sampling = { temperature = 0.7, top_p = 0.95, top_k = 0, max_tokens = 900 }\n",
            "--temp 0.7 --top-p 0.95 --top-k --predict 900",
        ),
        (
            'speculative = { method = "mtp", tokens = 3, min_tokens = 2, min_probability = 0.75 }\n',
            (
                "--spec-draft-n-min 2 --spec-draft-p-min 0.75 --spec-type draft-mtp"
                " --spec-draft-n-max 3"
            ),
        ),
    ],
)
def test_keys_of_llama_server(keys: str, arguments: str) -> None:
    """A context is divided among the slots, layers and experts are placed, builds differ."""
    assert added("llama-server", keys) == arguments


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        (
            'kv = "f16"\n' + VLLM + 'dtype = "half"\n',
            "--kv-cache-dtype float16 --dtype half",
        ),
        (
            'kv = "bf16"\n' + VLLM + 'dtype = "bfloat16"\n',
            "--kv-cache-dtype bfloat16 --dtype bfloat16",
        ),
        ('kv = "auto"\n', "--kv-cache-dtype auto"),
        ('kv = "nvfp4"\n', "--kv-cache-dtype nvfp4"),
        ('kv = "int8_per_token_head"\n', "--kv-cache-dtype int8_per_token_head"),
        ('kv = "turboquant_k8v4"\n', "--kv-cache-dtype turboquant_k8v4"),
        ('kv = "fp8"\n', "--kv-cache-dtype fp8"),
        (
            "thinking = { budget = 512 }\n" + VLLM + 'reasoning_parser = "qwen3"\n',
            '--default-chat-template-kwargs {"enable_thinking":true} --reasoning-parser qwen3',
        ),
        (
            'speculative = { method = "eagle3", tokens = 3, model = "hf:o/n", tensor_parallel = 1, kv = "fp8" }\n',
            (
                '--speculative-config {"method":"eagle3","num_speculative_tokens":3,"model":"o/n",'
                '"draft_tensor_parallel_size":1,"kv_cache_dtype":"fp8"}'
            ),
        ),
        (
            'speculative = { method = "ngram", tokens = 5, ngram = { match = 4, min_match = 2 } }\n',
            (
                '--speculative-config {"method":"ngram","num_speculative_tokens":5,'
                '"prompt_lookup_max":4,"prompt_lookup_min":2}'
            ),
        ),
        ('speculative = { method = "suffix" }\n', '--speculative-config {"method":"suffix"}'),
        ('thinking = "on"\n', '--default-chat-template-kwargs {"enable_thinking":true}'),
        ('tool_parser = "hermes"\n', "--enable-auto-tool-choice --tool-call-parser hermes"),
        (
            'speculative = { method = "mtp", tokens = 3 }\n',
            '--speculative-config {"method":"mtp","num_speculative_tokens":3}',
        ),
        (
            "sampling = { temperature = 0.6, presence_penalty = 1.5, max_tokens = 900 }\n",
            '--override-generation-config {"temperature":0.6,"presence_penalty":1.5,"max_new_tokens":900}',
        ),
        (
            "sampling = { top_p = 0.9 }\n" + VLLM + "override_generation_config = { x = 1 }\n",
            '--override-generation-config {"top_p":0.9,"x":1}',
        ),
        (VLLM + "limit_mm_per_prompt = { image = 2 }\n", '--limit-mm-per-prompt {"image":2}'),
        (VLLM + "compilation_config = { mode = 3 }\n", '--compilation-config {"mode":3}'),
        (VLLM + 'attention_backend = "FLASHINFER"\n', "--attention-backend FLASHINFER"),
        (VLLM + "long_prefill_token_threshold = 4096\n", "--long-prefill-token-threshold 4096"),
        (VLLM + "cpu_offload_gb = 4.5\n", "--cpu-offload-gb 4.5"),
        (
            'thinking = "off"\n' + VLLM + 'chat_template_kwargs = { effort = "low" }\n',
            '--default-chat-template-kwargs {"enable_thinking":false,"effort":"low"}',
        ),
        (VLLM + "prefix_caching = true\n", "--enable-prefix-caching"),
        (VLLM + "chunked_prefill = false\n", "--no-enable-chunked-prefill"),
        (VLLM + "enforce_eager = true\n", "--enforce-eager"),
        (VLLM + 'kv_cache_memory_bytes = "1GiB"\n', "--kv-cache-memory-bytes 1073741824"),
    ],
)
def test_keys_of_vllm(keys: str, arguments: str) -> None:
    """A cache is of the type that is written, never what a checkpoint says; a parser comes with its switch."""
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
        ('kv = "bf16"\n', "--kv-cache-dtype bf16"),
        ('kv = "mxfp8"\n', "--kv-cache-dtype mxfp8"),
        ('kv = "nvfp4"\n', "--kv-cache-dtype nvfp4"),
        ('thinking = "off"\n', '--default-chat-template-kwargs {"enable_thinking":false}'),
        (
            "thinking = { budget = 64 }\n" + SGLANG + 'reasoning_parser = "qwen3"\n',
            (
                '--default-chat-template-kwargs {"enable_thinking":true} --enable-strict-thinking'
                " --reasoning-parser qwen3"
            ),
        ),
        (
            'speculative = { method = "dflash", tokens = 15, model = "/d", kv = "fp8" }\n',
            (
                "--speculative-algorithm DFLASH --speculative-draft-model-path /d"
                " --speculative-draft-kv-cache-dtype fp8_e4m3 --speculative-num-draft-tokens 16"
            ),
        ),
        ('speculative = { method = "dspark" }\n', "--speculative-algorithm DSPARK"),
        (
            'speculative = { method = "dspark", tokens = 7 }\n',
            "--speculative-algorithm DSPARK --speculative-dspark-block-size 7",
        ),
        (
            'speculative = { method = "standalone", tokens = 4, model = "hf:o/n" }\n',
            (
                "--speculative-algorithm STANDALONE --speculative-draft-model-path o/n"
                " --speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5"
            ),
        ),
        (
            'speculative = { method = "ngram", tokens = 4 }\n',
            "--speculative-algorithm NGRAM --speculative-num-draft-tokens 5",
        ),
        (SGLANG + "embedding = true\n", "--is-embedding"),
        (
            SGLANG + "chat_template_kwargs = { thinking = true }\n",
            '--default-chat-template-kwargs {"thinking":true}',
        ),
        (SGLANG + "chunked_prefill_size = -1\n", "--chunked-prefill-size -1"),
        (
            SGLANG + "disable_cuda_graph = true\n",
            "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled",
        ),
    ],
)
def test_keys_of_sglang(keys: str, arguments: str) -> None:
    """A chain of drafts has one token more than it has steps."""
    assert added("sglang", keys) == arguments


def test_thinking_off_is_a_switch_of_llama_server() -> None:
    """The template is rendered without thinking: a budget of 0 would only cut a thought off."""
    off = profile("llama-server", 'thinking = "off"\n')
    words = ENGINES["llama-server"].invocation(off, InvocationContext()).argv
    argv = spelled(words, None)
    assert argv[argv.index("--reasoning") + 1] == "off"
    assert "--reasoning-budget" not in argv


OLD = EngineBuild(
    options={
        **dict.fromkeys(("--mlock", "--no-mmap", "--direct-io")),
        **dict.fromkeys(("--draft-max", "--reasoning-budget", "--device-draft"), ()),
        **dict.fromkeys(("--spec-ngram-size-n", "--spec-ngram-min-hits", "--draft-min"), ()),
        **dict.fromkeys(("--cache-type-k-draft", "--cache-type-v-draft"), ()),
    }
)


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        ('thinking = "off"\n', "--reasoning-budget 0"),
        ('thinking = "on"\n', "--reasoning-budget -1"),
        ("thinking = { budget = 9 }\n", "--reasoning-budget 9"),
        (LLAMA + "mlock = true\n", "--mlock"),
        (LLAMA + 'load_mode = "none"\n', "--no-mmap"),
        (
            'speculative = { method = "mtp", tokens = 3, device = "CUDA0" }\n',
            "--spec-type draft-mtp --draft-max 3 --device-draft CUDA0",
        ),
        (
            'speculative = { method = "ngram", tokens = 9, ngram = { match = 4, hits = 2 } }\n',
            (
                "--spec-type ngram-simple --spec-ngram-size-n 4 --draft-max 9"
                " --spec-ngram-min-hits 2"
            ),
        ),
        (
            'speculative = { method = "mtp", tokens = 3, min_tokens = 2, kv = "q8_0" }\n',
            "--draft-min 2 --cache-type-k-draft q8_0 --cache-type-v-draft q8_0",
        ),
    ],
)
def test_an_older_llama_server_has_other_words(keys: str, arguments: str) -> None:
    """Options that were renamed in 2026 have the names that the build knows; CORS is left out."""
    words = ENGINES["llama-server"].invocation(profile("llama-server", keys), InvocationContext())
    command = " ".join(spelled(words.argv, OLD))
    assert f" {arguments} " in command
    assert "--cors" not in command


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


ADAPTERS = (
    'adapters = [{ name = "sql", path = "/l/sql" }, { name = "de", path = "hf:a/b", rank = 48 }]\n'
)


@pytest.mark.parametrize(
    ("engine", "keys", "arguments"),
    [
        (
            "vllm",
            ADAPTERS,
            "--enable-lora --lora-modules sql=/l/sql de=a/b --max-lora-rank 64",
        ),
        (
            "vllm",
            'adapters = [{ name = "sql", path = "/l/sql", rank = 16 }]\n',
            "--enable-lora --lora-modules sql=/l/sql",
        ),
        ("sglang", ADAPTERS, "--enable-lora --lora-paths sql=/l/sql de=a/b"),
    ],
)
def test_adapters_are_loaded_under_their_names(engine: str, keys: str, arguments: str) -> None:
    """Of vLLM ranks above 16 need a limit of its own list; SGLang reads them itself."""
    assert added(engine, keys) == arguments


@pytest.mark.parametrize(("engine", "model"), [("vllm", "sql"), ("sglang", "m:sql")])
def test_an_adapter_is_asked_for_by_its_engines_rule(engine: str, model: str) -> None:
    """SGLang takes the adapter from behind a colon; to vLLM an adapter is a model."""
    one = profile(engine, ADAPTERS + 'served = ["m"]\n')
    assert ENGINES[engine].adapter_name(one, "sql") == model


@pytest.mark.parametrize(("keys", "word"), [("ctx = 4096\n", "4096"), ("", "{ctx}")])
def test_a_command_is_given_its_context_where_it_is_set(keys: str, word: str) -> None:
    """The program and the list of models have the context from one key; without it braces stay."""
    text = f'engine = "command"\nport = 8104\n{keys}[command]\nargv = ["/c", "{{port}}", "-c", "{{ctx}}"]\n'
    one = parse_profile("x", text.encode())
    argv = ENGINES["command"].invocation(one, InvocationContext()).argv
    assert argv == ("/c", "8104", "-c", word)

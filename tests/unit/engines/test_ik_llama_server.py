"""Server of ik_llama.cpp: its arguments, what it refuses, and what it declares and is estimated by."""

import tomllib
from pathlib import Path

import pytest

from appliance.engines.ik_llama_server import ENGINE, RULES, TABLE
from appliance.engines.shared.engine import DraftLoading, LlamaCppLoading, Task
from appliance.engines.shared.invocation import InvocationContext
from appliance.model.errors import ProfileError
from appliance.model.running_facts import Topic
from appliance.model.spec import Profile
from appliance.system.profile_files.loading import load_profile, parse_profile
from tests.fakes.profile_texts import MINIMAL

EVERY = Path(__file__).parents[2] / "pins" / "boxes" / "engines" / "every-ik-key.toml"
OURS = "--jinja --metrics --host 127.0.0.1 --port 8105"


def profile(keys: str) -> Profile:
    """The shortest profile, with more keys."""
    return parse_profile("x", (MINIMAL["ik-llama-server"] + keys).encode())


def arguments(keys: str) -> str:
    """Arguments between those of the shortest profile and those of the appliance."""
    words = " ".join(ENGINE.invocation(profile(keys), InvocationContext()).argv)
    assert words.endswith(OURS)
    return words.removesuffix(OURS).strip()


def problem(keys: str) -> str:
    """The faults of a profile."""
    with pytest.raises(ProfileError) as caught:
        profile(keys)
    return str(caught.value)


def test_the_shortest_profile_is_all_of_a_model_on_the_gpus() -> None:
    """The fork reads no word for all layers, so a number above any model's is written."""
    expected = "/opt/i --model /m.gguf --alias x --ctx-size 0 --parallel 1 --gpu-layers 999"
    assert arguments("") == expected


@pytest.mark.parametrize(
    ("keys", "written"),
    [
        ("ctx = 4096\nparallel = 3\n", "--ctx-size 12288 --parallel 3"),
        ("gpus = []\n", "--gpu-layers 0"),
        ('thinking = "off"\n', "--reasoning off"),
        ("thinking = { budget = 64 }\n", "--reasoning on --reasoning-budget 64"),
        ('[ik-llama-server]\ngpu_layers = "all"\n', "--gpu-layers 999"),
        ("[ik-llama-server]\ngpu_layers = 7\n", "--gpu-layers 7"),
        ('[ik-llama-server]\ncpu_experts = "all"\n', "--gpu-layers 999 --cpu-moe"),
        (
            '[ik-llama-server]\ncpu_experts = "2-3"\n',
            r"--override-tensor blk\.(2|3)\.ffn_.*_exps\.=CPU",
        ),
        ('[ik-llama-server]\nchat_template = "chatml"\n', "--chat-template chatml"),
        ('[ik-llama-server]\nchat_template = "/t"\n', "--chat-template-file /t"),
        ("[ik-llama-server]\nmmap = false\nfused_moe = false\n", "--no-mmap --no-fused-moe"),
        (
            "[ik-llama-server]\nsmart_expert_reduction = [6, 0.8]\n",
            "--smart-expert-reduction 6,0.8",
        ),
        ('speculative = { method = "mtp", tokens = 2 }\n', "--spec-type mtp:n_max=2"),
        (
            (
                'speculative = { method = "draft", tokens = 8, min_tokens = 2, min_probability = 0.5, '
                'model = "/d.gguf", kv = "q8_0", device = ["CUDA0", "CUDA1"] }\n'
            ),
            (
                "--spec-type draft:n_max=8,n_min=2,p_min=0.5 --model-draft /d.gguf "
                "--gpu-layers-draft 999 --device-draft CUDA0,CUDA1"
            ),
        ),
        (
            'speculative = { method = "ngram", tokens = 32, ngram = { match = 8, hits = 2 } }\n',
            "--spec-type ngram_simple:n_max=32,ngram_size_m=32,ngram_size_n=8,ngram_min_hits=2",
        ),
        ('speculative = { method = "suffix" }\n', "--spec-type suffix"),
        (
            'speculative = { method = ["ngram-mod", "mtp"], tokens = 2, ngram = { tokens = 64 } }\n',
            "--spec-type ngram_mod:n_max=64 --spec-type mtp:n_max=2",
        ),
        (
            'speculative = { method = ["ngram-mod", "mtp"], tokens = 2 }\n',
            "--spec-type ngram_mod --spec-type mtp:n_max=2",
        ),
    ],
)
def test_a_key_becomes_an_argument(keys: str, written: str) -> None:
    """Each key is written as the fork spells it."""
    assert written in arguments(keys)


def test_on_is_not_written_where_the_fork_has_only_off() -> None:
    """A key that is true says nothing where only the opposite has an option."""
    keys = "[ik-llama-server]\nmmap = true\nfused_moe = true\nkv_offload = true\n"
    assert arguments(keys) == arguments("")


def test_every_key_of_the_table_is_in_one_profile() -> None:
    """The pinned profile has all keys, and what is written is found again by the table."""
    own = {o.key.partition(".")[2] for o in TABLE.options if o.key.startswith("ik-llama-server.")}
    assert own - set(tomllib.loads(EVERY.read_text())["ik-llama-server"]) == {"n_cpu_moe"}
    argv = ENGINE.invocation(load_profile(EVERY), InvocationContext()).argv
    ours = {"--jinja", "--metrics", "--host", "--port", "--no-warmup"}
    options = [word for word in argv[1:] if word.startswith("-")]
    assert [option for option in options if TABLE.named(option) is None] == [
        option for option in options if option in ours
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        *("--host", "--port", "--api-key", "--rpc", "--metrics", "--jinja", "--no-slots", "--fit"),
        *("--fit-margin", "-gfm", "--hf-repo", "-mu", "--slot-save-path", "--sql-save-file"),
        *(
            "--sqlite-zstd-ext-file",
            "--ui-mcp-proxy",
            "--path",
            "-v",
            "--log-file",
            "--ssl-key-file",
        ),
        *("-mtp", "--draft-max", "--draft-p-min", "--spec-ngram-size-n", "--model", "-dr", "-ser"),
    ],
)
def test_an_argument_of_the_appliance_or_a_key_is_refused(arguments: str) -> None:
    """Options that a key is written from, or that move what the appliance holds, are refused."""
    assert RULES.refusal(arguments) is not None


@pytest.mark.parametrize("argument", ["--no-warmup", "--seed", "--keep"])
def test_another_argument_is_accepted(argument: str) -> None:
    """Options without a key may be added."""
    assert RULES.refusal(argument) is None


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ('tool_parser = "x"\n', "remove tool_parser"),
        ('kv = "q2_K"\n', 'kv "q2_K" is unknown to ik_llama.cpp'),
        ('speculative = { method = "draft", tokens = 2, model = "hf:a/b" }\n', "name the file"),
        ('speculative = { method = "nope" }\n', '"nope" is unknown'),
        ('speculative = { method = ["mtp", "ngram"], tokens = 2 }\n', "takes two methods only"),
        ('speculative = { method = ["ngram", "suffix"] }\n', "takes two methods only"),
        (
            'speculative = { method = ["ngram", "suffix", "mtp"], tokens = 2 }\n',
            "takes two methods only",
        ),
        ("[ik-llama-server]\nubatch = 4096\n", "ubatch 4096 is above batch 2048"),
        ("gpus = []\n[ik-llama-server]\ngpu_layers = 3\n", "claims no GPU"),
        ('gpus = []\n[ik-llama-server]\ncpu_experts = "all"\n', "without GPUs all experts"),
        ("[ik-llama-server]\nn_cpu_moe = 2\ncpu_experts = [1]\n", "cpu_experts names layers too"),
        ("gpus = [0]\n[ik-llama-server]\nmain_gpu = 1\n", "there are fewer"),
        ('gpus = [0]\n[ik-llama-server]\nsplit_mode = "graph"\n', "needs two GPUs"),
        ("[ik-llama-server]\nrun_time_repack = true\nmmap = true\n", "keep one of the two"),
        ("[ik-llama-server]\nsmart_expert_reduction = [6]\n", "two numbers are needed"),
        (
            (
                'thinking = "on"\n[ik-llama-server]\n'
                "chat_template_kwargs = { enable_thinking = false }\n"
            ),
            "enable_thinking is what the key thinking says",
        ),
    ],
)
def test_a_contradiction_is_told(keys: str, text: str) -> None:
    """Values that the fork would refuse or silently change are told when the profile is read."""
    assert text in problem(keys)


def test_a_repository_and_a_socket_are_refused() -> None:
    """The fork would download at a start, and listens on ports alone."""
    text = 'engine = "ik-llama-server"\nbinary = "/opt/i"\nmodel = "hf:a/b"\nsocket = "/run/x/a.sock"\n'
    with pytest.raises(ProfileError) as caught:
        parse_profile("x", text.encode())
    assert "would download a repository" in str(caught.value)
    assert "listens on a port" in str(caught.value)


def test_it_declares_what_its_pages_tell() -> None:
    """Context, slots, layers, drafts, model and thinking are compared with what runs."""
    keys = 'ctx = 4096\nthinking = "off"\nspeculative = { method = "mtp", tokens = 2 }\n'
    topics = {fact.topic for fact in ENGINE.declared(profile(keys))}
    assert topics >= {Topic.CONTEXT, Topic.SLOTS, Topic.GPU_LAYERS, Topic.MODEL, Topic.THINKING}


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ("", "all"),
        ("gpus = []\n", "0"),
        ('[ik-llama-server]\ngpu_layers = "all"\n', "all"),
        ("[ik-llama-server]\ngpu_layers = 9\n", "9"),
    ],
)
def test_it_declares_its_layers(keys: str, layers: str) -> None:
    """The layers on the GPUs are those of the key, and all where none is set."""
    facts = {fact.topic: fact.text for fact in ENGINE.declared(profile(keys))}
    assert facts[Topic.GPU_LAYERS] == layers


def test_it_is_estimated_as_llama_cpp_loads_a_file() -> None:
    """A sliding window keeps the whole context unless swa_compress says otherwise."""
    plain = ENGINE.memory(profile("")).loading
    assert isinstance(plain, LlamaCppLoading)
    assert plain.full_windows
    assert plain.certain
    assert plain.draft is None
    keys = (
        'speculative = { method = "mtp", tokens = 2 }\nextra_args = ["-ctk-first", "f16,2"]\n'
        '[ik-llama-server]\nswa_compress = true\nctx_checkpoints = 0\nsplit_mode = "none"\n'
    )
    more = ENGINE.memory(profile(keys))
    assert more.gpu_split == (1.0,)
    assert isinstance(more.loading, LlamaCppLoading)
    assert not more.loading.full_windows
    assert not more.loading.certain
    assert more.loading.checkpoints == 0
    assert more.loading.draft == DraftLoading(tokens=2, own_layers=True)
    assert ENGINE.memory(profile('speculative = { method = "ngram" }\n')).loading == plain


def test_tasks_and_abilities() -> None:
    """Embeddings and images are by option; tools are read by any template."""
    assert ENGINE.task(profile("")) is None
    assert ENGINE.task(profile("[ik-llama-server]\nembedding = true\n")) is Task.EMBED
    assert ENGINE.tools(profile(""))
    assert ENGINE.vision(profile('[ik-llama-server]\nmmproj = "/p.gguf"\n'))
    assert not ENGINE.vision(profile(""))

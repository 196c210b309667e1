"""Abilities of a model in a compiled profile, its tools, and the tokens that one request may use."""

import pytest

from appliance.engines import ENGINES
from appliance.engines.shared.invocation import InvocationContext
from appliance.model.model_headers import Gguf, LookAtModel, Model, Safetensors
from appliance.model.profile import Abilities, Applied
from appliance.profiles.compilation import ProfileSource, spec_of, unseen
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL

SEES = Safetensors(
    config={"vision_config": {}, "max_position_embeddings": 4096}, weights_bytes=1, file_bytes=1
)
READS = Safetensors(
    config={"num_hidden_layers": 1, "max_position_embeddings": 8192}, weights_bytes=1, file_bytes=1
)
TRAINED = Gguf(
    metadata={
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.embedding_length": 8,
        "llama.attention.head_count": 1,
        "llama.context_length": 2048,
    },
    tensors=(),
    file_bytes=1,
)


def compiled(engine: str, more: str = "", look: LookAtModel = unseen) -> Applied:
    """Return a profile of an engine as it is installed."""
    top, _, table = ("\n" + more).partition("\n[")
    text = f"{top}\n{MINIMAL[engine]}" + (f"[{table}" if table else "")
    profile = parse_profile("p", text.encode())
    source = ProfileSource(path="/p.toml", sha256="0" * 64, modified_unix_s=77)
    return spec_of(profile, source, InvocationContext(hf_home="/hf"), look=look).applied


@pytest.mark.parametrize(
    ("engine", "more", "vision"),
    [
        ("llama-server", "", False),
        ("llama-server", '[llama-server]\nmmproj = "/m/mmproj.gguf"\n', True),
        ("llama-server", "vision = true\n", True),
        ("llama-server", 'vision = false\n[llama-server]\nmmproj = "/m/mmproj.gguf"\n', False),
        ("xllamacpp", "", False),
        ("vllm", "", None),
        ("sglang", "", None),
        ("command", "", None),
        ("command", "vision = true\n", True),
    ],
)
def test_vision(engine: str, more: str, vision: bool | None) -> None:  # noqa: FBT001
    """A profile's own word goes first, then what its options load."""
    assert compiled(engine, more).abilities.vision is vision


@pytest.mark.parametrize(("weights", "vision"), [(SEES, True), (READS, False)])
def test_vision_of_a_model_that_is_there(weights: Safetensors, vision: bool) -> None:  # noqa: FBT001
    """Where neither profile nor options say, the model's own configuration does."""
    assert compiled("vllm", look=lambda _: Model(main=weights)).abilities.vision is vision


def test_a_repository_may_bring_a_projector() -> None:
    """llama-server loads a projector that comes with a repository: nothing is known beforehand."""
    profile = parse_profile(
        "p", MINIMAL["llama-server"].replace('"/m.gguf"', '"hf:owner/name"').encode()
    )
    assert ENGINES["llama-server"].vision(profile) is None


@pytest.mark.parametrize(
    ("engine", "more", "reasoning"),
    [
        ("vllm", "", None),
        ("vllm", '[vllm]\nreasoning_parser = "qwen3"\n', True),
        ("vllm", 'thinking = "off"\n[vllm]\nreasoning_parser = "qwen3"\n', False),
        ("sglang", '[sglang]\nreasoning_parser = "qwen3"\n', True),
        ("llama-server", 'thinking = "on"\n', True),
        ("llama-server", 'thinking = "off"\n', False),
        ("llama-server", "", None),
    ],
)
def test_reasoning(engine: str, more: str, reasoning: bool | None) -> None:  # noqa: FBT001
    """A model that may think and is not told to is not known to."""
    assert compiled(engine, more).abilities.reasoning is reasoning


@pytest.mark.parametrize(
    ("engine", "more", "embeddings"),
    [
        ("llama-server", "", False),
        ("llama-server", "[llama-server]\nembedding = true\n", True),
        ("vllm", 'extra_args = ["--runner", "pooling"]\n', True),
        ("command", 'warm_up = "embedding"\n', True),
        ("command", 'warm_up = "none"\n', None),
    ],
)
def test_embeddings(engine: str, more: str, embeddings: bool | None) -> None:  # noqa: FBT001
    """A profile that is asked for an embedding at the start embeds; without a proof nothing is known."""
    assert compiled(engine, more).abilities.embeddings is embeddings


@pytest.mark.parametrize(
    ("engine", "more", "look", "tokens"),
    [
        ("vllm", "ctx = 1024\n", unseen, 1024),
        ("vllm", "", unseen, None),
        ("vllm", "", lambda _: Model(main=READS), 8192),
        ("llama-server", "", lambda _: Model(main=TRAINED), 2048),
        # Without ctx the requests share what the model was trained for.
        ("llama-server", "parallel = 4\n", lambda _: Model(main=TRAINED), 512),
        ("llama-server", "ctx = 100\nparallel = 4\n", lambda _: Model(main=TRAINED), 100),
        (
            "llama-server",
            "parallel = 4\n[llama-server]\nkv_unified = true\n",
            lambda _: Model(main=TRAINED),
            2048,
        ),
        (
            "llama-server",
            "",
            lambda _: Model(main=Gguf(metadata={}, tensors=(), file_bytes=1)),
            None,
        ),
        ("command", "", unseen, None),
        ("command", "ctx = 4096\n", unseen, 4096),
    ],
)
def test_tokens_of_a_request(engine: str, more: str, look: LookAtModel, tokens: int | None) -> None:
    """A profile's ctx goes first, then the engine's default, then the model's training."""
    assert compiled(engine, more, look).context_tokens == tokens


def test_the_time_is_that_of_the_model() -> None:
    """The model's file tells when it was made; without one the profile's file does."""
    model = Model(main=READS, modified_unix_s=55)
    assert compiled("vllm", look=lambda _: model).file_unix_s == 55
    assert compiled("vllm").file_unix_s == 77
    assert compiled("vllm").abilities == Abilities(embeddings=False)


@pytest.mark.parametrize(
    ("engine", "more", "promised"),
    [
        ("vllm", "", False),
        ("vllm", 'tool_parser = "hermes"\n', True),
        ("vllm", 'tool_parser = "hermes"\ntools = false\n', False),
        ("sglang", 'tool_parser = "qwen"\n', True),
        ("sglang", "", False),
        ("llama-server", "", True),
        ("llama-server", "tools = false\n", False),
        ("xllamacpp", "", False),
        ("command", "", False),
        ("command", "tools = true\n", True),
    ],
)
def test_promise(engine: str, more: str, *, promised: bool) -> None:
    """A profile's own word goes first, then that of its engine and options."""
    profile = parse_profile("p", (more + MINIMAL[engine]).encode())
    source = ProfileSource(path="/etc/appliance/profiles/p.toml", sha256="0" * 64)
    assert spec_of(profile, source, InvocationContext()).applied.tools is promised

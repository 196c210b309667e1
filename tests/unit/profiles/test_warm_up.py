"""Request that proves the start of an engine that pools instead of generating."""

import json
from pathlib import Path

import pytest

from appliance.model.errors import ProfileError
from appliance.model.model_headers import Model, ModelReference, Safetensors
from appliance.model.profile import WarmUp
from appliance.model.spec import Profile
from appliance.profiles.compilation import warm_up_of
from appliance.system.model_files.reading import read_model
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL


@pytest.mark.parametrize(
    ("engine", "arguments", "expected"),
    [
        ("vllm", [], WarmUp.COMPLETION),
        ("vllm", ["--runner", "pooling"], WarmUp.EMBEDDING),
        ("vllm", ["--runner=pooling"], WarmUp.EMBEDDING),
        ("vllm", ["--runner=pooling", "--runner", "generate"], WarmUp.COMPLETION),
        ("vllm", ["--runner", "pooling", "--convert", "classify"], WarmUp.NONE),
        ("vllm", ["--convert=embed"], WarmUp.EMBEDDING),
        ("vllm", ["--runner", "auto", "--convert", "none"], WarmUp.COMPLETION),
        ("vllm", ["--task", "embedding"], WarmUp.EMBEDDING),
        ("vllm", ["--task", "score"], WarmUp.NONE),
        ("vllm", ["--task"], WarmUp.COMPLETION),
        ("vllm", ["--seed", "runner", "pooling"], WarmUp.COMPLETION),
        ("sglang", [], WarmUp.COMPLETION),
        ("llama-server", [], WarmUp.COMPLETION),
        ("command", [], WarmUp.COMPLETION),
    ],
)
def test_options_that_pool_are_proved_by_another_request(
    engine: str, arguments: list[str], expected: WarmUp
) -> None:
    """An embedder is asked for an embedding, and a classifier for nothing."""
    assert warm_up_of(profile(_text(engine, arguments)), None) is expected


@pytest.mark.parametrize(
    ("engine", "key"),
    [("sglang", "embedding"), ("llama-server", "embedding"), ("llama-server", "rerank")],
)
def test_keys_that_pool_are_proved_by_another_request(engine: str, key: str) -> None:
    """A server that embeds or ranks is asked for an embedding, and cannot be asked for a chat."""
    table = f"[{engine}]\n{key} = true\n"
    assert warm_up_of(profile(MINIMAL[engine] + table), None) is WarmUp.EMBEDDING
    with pytest.raises(ProfileError, match='remove it, or write "embedding"'):
        profile(MINIMAL[engine] + 'warm_up = "chat"\n' + table)


@pytest.mark.parametrize(
    ("engine", "architectures", "pools", "expected"),
    [
        ("vllm", ["LlamaForCausalLM"], False, WarmUp.COMPLETION),
        ("vllm", ["Qwen3ForCausalLM"], True, WarmUp.EMBEDDING),
        ("sglang", ["Qwen3ForCausalLM"], True, WarmUp.COMPLETION),
        ("vllm", ["BertModel"], False, WarmUp.EMBEDDING),
        ("sglang", ["LlamaEmbeddingModel"], False, WarmUp.EMBEDDING),
        ("vllm", ["XLMRobertaForSequenceClassification"], False, WarmUp.NONE),
        ("vllm", ["Qwen2ForRewardModel"], False, WarmUp.NONE),
        ("vllm", ["GPT2LMHeadModel"], False, WarmUp.COMPLETION),
        ("vllm", ["Peculiar"], False, WarmUp.COMPLETION),
        ("vllm", [7], False, WarmUp.COMPLETION),
        ("vllm", [], False, WarmUp.COMPLETION),
        ("vllm", "BertModel", False, WarmUp.COMPLETION),
    ],
)
def test_a_model_that_pools_is_proved_by_another_request(
    engine: str,
    architectures: object,
    pools: bool,  # noqa: FBT001
    expected: WarmUp,
) -> None:
    """Where no option says so, the engine goes by the model's architecture and modules."""
    config = {"architectures": architectures}
    model = Safetensors(config=config, weights_bytes=1, file_bytes=1, pools=pools)
    assert warm_up_of(profile(_text(engine, [])), model) is expected


def test_what_the_profile_says_goes_first() -> None:
    """An explicit request is asked, whatever the model looks like."""
    asked = profile(_text("vllm", ["--runner", "pooling"], 'warm_up = "none"\n'))
    assert warm_up_of(asked, None) is WarmUp.NONE


@pytest.mark.parametrize("asked", ["completion", "chat"])
@pytest.mark.parametrize(
    ("engine", "arguments", "instead"),
    [
        ("vllm", ["--runner", "pooling"], "embedding"),
        ("vllm", ["--convert", "classify"], "none"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(
    asked: str, engine: str, arguments: list[str], instead: str
) -> None:
    """The refusal names the request that would be answered."""
    with pytest.raises(ProfileError, match=f'remove it, or write "{instead}"'):
        profile(_text(engine, arguments, f'warm_up = "{asked}"\n'))


def test_modules_of_sentence_transformers_are_seen(tmp_path: Path) -> None:
    """A directory with ``modules.json`` is a model that pools."""
    header = json.dumps({"w": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(2)
    (tmp_path / "model.safetensors").write_bytes(weights)
    reference = ModelReference(model=str(tmp_path), path=str(tmp_path), gguf=False)
    for pools in (False, True):
        found = read_model(reference)
        assert isinstance(found, Model)
        assert isinstance(found.main, Safetensors)
        assert found.main.pools is pools
        (tmp_path / "modules.json").write_text("[]")


def profile(text: str) -> Profile:
    """The profile in `text`."""
    return parse_profile("p", text.encode())


def _text(engine: str, arguments: list[str], more: str = "") -> str:
    """A profile of `engine` with these ``extra_args``."""
    return f"extra_args = {json.dumps(arguments)}\n{more}{MINIMAL[engine]}"

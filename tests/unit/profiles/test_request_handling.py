"""Handling of requests for a profile: parameters that are set or removed, and routing."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from appliance.model.errors import ProfileError
from appliance.model.gateway import ModelCard, Routed
from appliance.model.profile import Abilities, Endpoint, Handling
from appliance.profiles.compilation import BUDGETS, THINKING, handling_of
from appliance.routing.model_names import routed
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.body_parsing import change_json
from tests.fakes.profile_texts import MINIMAL
from tests.fakes.unit_specs import made

VLLM = """\
engine = "vllm"
binary = "/opt/vllm/bin/vllm"
model = "/models/m"
port = 8022
"""


def handled(text: str, engine: str = VLLM) -> Handling:
    """Return the handling that is installed for a profile."""
    return handling_of(parse_profile("m", (engine + text).encode()))


def problems(text: str) -> list[str]:
    """Return the problems of a profile, a line each."""
    with pytest.raises(ProfileError) as caught:
        parse_profile("m", (VLLM + text).encode())
    return str(caught.value).splitlines()


def test_a_profile_that_says_nothing_changes_nothing() -> None:
    """Requests pass as they came."""
    assert handled("") == handled('thinking = "on"\n') == Handling()


def test_inner_tables_reach_into_objects() -> None:
    """Every spelling of TOML names the same path."""
    nested = handled("[gateway.set]\nn = 1\n[gateway.set.a.b]\nc = [1, { d = true }]\n")
    dotted = handled("[gateway]\nset.n = 1\nset.a.b.c = [1, { d = true }]\n")
    quoted = handled('[gateway]\nset = { n = 1, "a.b.c" = [1, { d = true }] }\n')
    assert nested == dotted == quoted
    assert nested.set_parameters == {"n": 1, "a.b.c": [1, {"d": True}]}


def test_all_of_the_table_arrives() -> None:
    """Removed parameters, switch permission and the engine's key all arrive."""
    text = """
[gateway]
strip = ["logprobs", "chat_template_kwargs.tools"]
switch = "on-request"
engine_key_file = "/etc/appliance/m.key"
"""
    assert handled(text) == Handling(
        strip_parameters=("logprobs", "chat_template_kwargs.tools"),
        on_request=True,
        engine_key_file="/etc/appliance/m.key",
    )


def test_thinking_that_is_off_stays_off() -> None:
    """Every word that would switch it on is taken out of requests."""
    assert handled('thinking = "off"\n').strip_parameters == THINKING


@pytest.mark.parametrize(
    "body",
    [
        {"reasoning_budget_tokens": -1},
        {"thinking_budget_tokens": 9000},
        {"thinking_token_budget": 9000},
        {"reasoning_budget_tokens": 100, "reasoning_budget_message": "go on"},
        {"reasoning_budget_start_tag": "<x>", "reasoning_budget_end_tag": "</x>"},
        {"reasoning_budget_end_tags": ["</x>"]},
        {"chat_template": "{{ messages }}<think>"},
        {"output_config": {"effort": "high"}},
        {"chat_template_kwargs": {"thinking_mode": "on", "thinking_option": "on"}},
        {"chat_template_kwargs": {"force_reasoning": True, "reasoning": True}},
        {"thinking": {"type": "enabled", "budget_tokens": 9000}},
        {"reasoning": {"effort": "high"}},
        {"think": "high"},
    ],
    ids=json.dumps,
)
def test_no_parameter_of_a_client_undoes_thinking_off(body: Mapping[str, object]) -> None:
    """Every field that an engine's template or its reasoning budget reads is taken out."""
    off = handled('thinking = "off"\n')
    passed = json.loads(
        change_json(json.dumps(body).encode(), model=None, set_={}, strip=off.strip_parameters)
    )
    assert [value for value in passed.values() if value != {}] == []


@pytest.mark.parametrize(
    ("engine", "parser", "sent"),
    [
        ("llama-server", "", {}),
        ("vllm", '[vllm]\nreasoning_parser = "qwen3"\n', {"thinking_token_budget": 512}),
        (
            "sglang",
            '[sglang]\nreasoning_parser = "qwen3"\n',
            {"custom_params.thinking_budget": 512},
        ),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reasoning_budget_tokens": -1},
        {"thinking_budget_tokens": 9000},
        {"thinking_token_budget": 9000},
        {"thinking": {"type": "enabled", "budget_tokens": 9000}},
        {"chat_template_kwargs": {"thinking_budget": 9000}},
        {"custom_params": {"thinking_budget": 9000}},
    ],
    ids=json.dumps,
)
def test_no_client_exceeds_the_budget(
    engine: str, parser: str, sent: Mapping[str, object], body: Mapping[str, object]
) -> None:
    """A client's own budget is taken out, and sent to an engine that knows none of its own."""
    found = handled("thinking = { budget = 512 }\n" + parser, MINIMAL[engine])
    assert found.set_parameters == sent
    assert set(found.strip_parameters) == set(BUDGETS) - sent.keys()
    passed = change_json(
        json.dumps(body).encode(),
        model=None,
        set_=found.set_parameters,
        strip=found.strip_parameters,
    )
    assert b"9000" not in passed
    assert (b"512" in passed) == bool(sent)


def test_a_budget_leaves_the_client_the_switch() -> None:
    """A client may ask for an answer without thinking where thinking has a budget."""
    found = handled("thinking = { budget = 512 }\n", MINIMAL["llama-server"])
    assert "reasoning_effort" not in found.strip_parameters
    assert "chat_template_kwargs.enable_thinking" not in found.strip_parameters


def test_what_the_owner_sets_stays_set() -> None:
    """A parameter that a profile sets on purpose is not removed, and none is removed twice."""
    text = 'thinking = "off"\n[gateway]\nset = { reasoning = { effort = "low" } }\nstrip = ["thinking"]\n'
    found = handled(text).strip_parameters
    assert "reasoning" not in found
    assert sorted(found) == sorted(set(THINKING) - {"reasoning"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[gateway]\nset = { model = "x" }\n',
            'gateway.set "model" is what the gateway itself relies on: leave it out',
        ),
        (
            '[gateway]\nstrip = ["stream"]\n',
            ('gateway.strip, item 1, "stream" is what the gateway itself relies on: leave it out'),
        ),
        (
            "[gateway]\nset = 3\n",
            "gateway.set is not a table of request parameters",
        ),
        (
            "[gateway]\nset = { since = 2026-01-01 }\n",
            "gateway.set since has a value that JSON cannot hold: a date or time",
        ),
        (
            "[gateway]\nset = { n = [nan] }\n",
            "gateway.set n has a value that JSON cannot hold: a list",
        ),
        (
            '[gateway]\nset = { "a b" = 1 }\n',
            'gateway.set "a b" is not the name of a request parameter, such as temperature',
        ),
        (
            '[gateway]\nstrip = ["a..b"]\n',
            (
                'gateway.strip, item 1, "a..b" is not the name of a request parameter, such as '
                "temperature"
            ),
        ),
        (
            "[gateway.set]\n" + "".join(f"a{n} = 1\n" for n in range(65)),
            "gateway.set has more than 64 parameters",
        ),
        (
            '[gateway]\nset = { a = { b = 1 } }\nstrip = ["c", "a"]\n',
            '"a" is removed, and "a.b" is set: keep one',
        ),
        (
            '[gateway]\nset = { a = 1 }\nstrip = ["a.b"]\n',
            '"a.b" is removed, and "a" is set: keep one',
        ),
    ],
    ids=range(10),
)
def test_a_mistake_is_said(text: str, expected: str) -> None:
    """One sentence, with the line of the key."""
    (line,) = problems(text)
    assert line.partition(": ")[2] == expected


def test_the_engine_is_told_a_name_that_it_knows() -> None:
    """The first served name that is no pattern, or the profile's own."""
    base = made("m", "gpu-0", served=("claude-*", "qwen", "q"))
    assert routed(base).engine_name == "qwen"
    assert routed(replace(base, served=("claude-*",))).engine_name == "m"


def test_what_is_applied_is_what_is_routed() -> None:
    """Names, address, claim and handling come from the manifest, the key from elsewhere."""
    handling = Handling(set_parameters={"n": 1}, strip_parameters=("a",), on_request=True)
    applied = replace(
        made("m", "gpu-0", served=("m", "x"), endpoint=Endpoint(port=9), handling=handling),
        tools=True,
        abilities=Abilities(vision=False),
        context_tokens=8,
        file_unix_s=5,
    )
    expected = Routed(
        name="m",
        served=("m", "x"),
        engine_name="m",
        engine_names={"m": "m", "default": "m", "x": "x"},
        endpoint=Endpoint(port=9),
        exclusive=True,
        handling=handling,
        engine_key="s3cret",
        card=ModelCard(
            created_unix_s=5, context_tokens=8, capabilities={"tools": True, "vision": False}
        ),
    )
    assert routed(applied, "s3cret") == expected
    assert "s3cret" not in repr(expected)
    assert not routed(made("embedder")).exclusive

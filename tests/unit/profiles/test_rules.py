"""Rules that profiles must meet."""

from typing import Any

import pytest

from appliance.engines import ENGINES
from appliance.model.errors import ProfileError
from appliance.profiles.rules import RULES, collisions
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL


class Recorder:
    """Stand-in for a profile that notes which of its keys are read."""

    def __init__(self, profile: Any) -> None:
        self.read: set[str] = set()
        self._profile = profile

    def __getattr__(self, name: str) -> Any:
        value = getattr(type(self._profile), name, None)
        if isinstance(value, property) and value.fget is not None:
            return value.fget(self)
        self.read.add(name)
        return getattr(self._profile, name)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_rule_reads_only_the_keys_that_it_names(engine: str) -> None:
    """A rule whose key has a fault is left out, so it must name every key that it reads."""
    profile = parse_profile("genesis", MINIMAL[engine].encode())
    for rule, keys in RULES:
        recorder: Any = Recorder(profile)
        assert not list(rule(recorder))
        recorder.read -= {"engine", "name"}
        if "options" in recorder.read:
            recorder.read = recorder.read - {"options"} | {engine}
        assert recorder.read <= keys, rule


@pytest.mark.parametrize(
    ("engine", "keys", "expected"),
    [
        (
            "vllm",
            'served = ["m", "s*"]\nadapters = [{ name = "sql", path = "/l" }]\n',
            (
                '"s*" covers the adapter sql: whoever misspells it would be answered by the model without it: '
                "narrow the pattern"
            ),
        ),
        (
            "vllm",
            'served = ["m", "sql"]\nadapters = [{ name = "sql", path = "/l" }]\n',
            '"sql" is already a name of this profile: choose another',
        ),
        (
            "vllm",
            'adapters = [{ name = "sql", path = "/l" }, { name = "sql", path = "/k" }]\n',
            '"sql" is already a name of this profile: choose another',
        ),
        (
            "vllm",
            'adapters = [{ name = "sql-*", path = "/l" }]\n',
            (
                'adapters.name, item 1, "sql-*" is not a model name without wildcards: letters, digits and '
                "._:/@+-"
            ),
        ),
        (
            "vllm",
            'adapters = [{ name = "sql", path = "/l,/k" }]\n',
            'adapters.path, item 1, "/l,/k" has a = or a comma, at which engines split it',
        ),
        (
            "vllm",
            'adapters = [{ name = "sql", path = "/l", rank = 513 }]\n',
            "vLLM loads no adapter of a rank above 512",
        ),
        (
            "vllm",
            'extra_args = ["--lora-modules", "sql=/l"]\n',
            '"--lora-modules" is written from the key adapters: use that',
        ),
        (
            "sglang",
            'served = ["qwen:8b"]\n',
            "sglang takes what follows a colon for an adapter: choose a name without one",
        ),
        *(
            (
                engine,
                'adapters = [{ name = "sql", path = "/l" }]\n',
                (
                    f"{engine} has no names for adapters: make a profile for each, with its file in lora of "
                    f"[{engine}], which every request to it is answered with"
                ),
            )
            for engine in ("llama-server", "ik-llama-server")
        ),
        (
            "xllamacpp",
            'adapters = [{ name = "sql", path = "/l" }]\n',
            "the embedded engine loads no adapters: use engine vllm or sglang",
        ),
        (
            "command",
            'adapters = [{ name = "sql", path = "/l" }]\n',
            "a command says this itself: put it into argv, and what clients ask for into served",
        ),
    ],
)
def test_an_adapter_that_no_request_would_reach_is_refused(
    engine: str, keys: str, expected: str
) -> None:
    """Another name, a pattern or an engine without names for adapters would answer in its place."""
    head, bracket, table = MINIMAL[engine].partition("[")
    with pytest.raises(ProfileError) as caught:
        parse_profile("x", f"{head}{keys}{bracket}{table}".encode())
    (line,) = str(caught.value).splitlines()
    assert line.partition(": ")[2] == expected


def test_an_adapter_with_the_name_of_a_profile_is_refused() -> None:
    """The profile of that name would be asked instead."""
    adapters = '[{ name = "sql", path = "/l" }, { name = "prose", path = "/p" }]'
    text = MINIMAL["vllm"] + f"adapters = {adapters}\n"
    one = parse_profile("one", text.encode())
    other = parse_profile("sql", MINIMAL["vllm"].encode())
    found = collisions({"one": one, "sql": other}, {}, {})
    assert [(n, [p.text for p in problems]) for n, problems in found.items()] == [
        ("one", ['"sql" is the profile sql: choose another name'])
    ]

"""Changes that make the copy of an example this box's own."""

from collections.abc import Mapping

import pytest

from appliance.profiles.foreign.profile_draft import HostFacts
from appliance.profiles.proposing.example_changes import (
    ExampleUse,
    KeyChange,
    example_changes,
    leaves_need_out,
)

EXAMPLE: Mapping[str, object] = {
    "engine": "llama-server",
    "binary": "/usr/local/bin/llama-server",
    "model": "/models/a.gguf",
    "served": ["gemma", "claude-*"],
    "port": 8040,
    "need": {"vram": "14GiB"},
}


def use(table: Mapping[str, object], model: str | None = "/m/b.gguf") -> ExampleUse:
    return ExampleUse(example="gemma", table=table, model=model, title="b")


def changes(
    one: ExampleUse,
    *,
    there: bool = True,
    programs: Mapping[str, str] | None = None,
    tokens: int | None = None,
) -> Mapping[str, KeyChange]:
    host = HostFacts(
        find_program=(programs or {}).get,
        home_of=lambda _: None,
        taken_ports={8040: "other.toml"},
    )
    return {
        c.where[0]: c
        for c in example_changes(one, host, lambda _: there, name="mine", tokens=tokens)
    }


def test_a_copy_has_its_own_model_names_and_port() -> None:
    """Model, description, names and a port that is taken change; a need of another model goes."""
    found = changes(use(EXAMPLE), tokens=4096)
    assert found["description"].value == "b, as the example gemma"
    assert found["model"] == KeyChange(where=("model",), value="/m/b.gguf")
    assert found["served"].value == ["mine", "claude-*"]
    assert (found["port"].value, found["port"].comment) == (8041, "was 8040, which other.toml has")
    assert found["ctx"].value == 4096
    assert found["need"].value is None
    assert "binary" not in found


@pytest.mark.parametrize(
    ("table", "programs", "binary", "comment"),
    [
        (EXAMPLE, {"llama-server": "/b/l"}, "/b/l", ""),
        (
            EXAMPLE,
            {},
            "/usr/local/bin/llama-server",
            "not found on this machine: correct the path",
        ),
        (
            {**EXAMPLE, "engine": "command"},
            {"command": "/b"},
            "/usr/local/bin/llama-server",
            "not found on this machine: correct the path",
        ),
    ],
)
def test_the_program_of_this_machine(
    table: Mapping[str, object], programs: Mapping[str, str], binary: str, comment: str
) -> None:
    """A program that is not where the example has it is looked for by its engine's name."""
    found = changes(use(table), there=False, programs=programs)["binary"]
    assert (found.value, found.comment) == (binary, comment)


def test_the_example_of_a_packaged_model() -> None:
    """The packaged model stays unless another is named, whose line then loses the comment."""
    packaged = {"engine": "xllamacpp", "model": "smollm2", "port": 8031, "need": {"ram": "1GiB"}}
    assert changes(use(packaged, model=None)) == {}
    found = changes(use(packaged))
    assert found["model"].comment == ""
    assert found.keys() == {"description", "model", "need"}
    assert "port" not in changes(use({"engine": "xllamacpp", "socket": "/run/x"}, model=None))


def test_the_need_of_the_same_model_stays() -> None:
    """A declared need holds for the same file elsewhere, but not for a share of other cards."""
    assert not leaves_need_out(use(EXAMPLE, model="/elsewhere/a.gguf"))
    assert not leaves_need_out(use(EXAMPLE, model=None))
    assert leaves_need_out(use({**EXAMPLE, "engine": "vllm"}, model="/elsewhere/a.gguf"))
    assert leaves_need_out(use({**EXAMPLE, "engine": "no such"}))


def test_names_without_the_examples_own_stay() -> None:
    """Names that are not the example's name are kept as they are."""
    assert "served" not in changes(use({**EXAMPLE, "served": ["other"]}))

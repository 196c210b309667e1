"""Presets of llama-server and llama-swap's configuration: what each of their keys means."""

import pytest

from appliance.profiles.foreign.model_lists import read_presets
from appliance.profiles.foreign.server_command import DispositionKind, ImportFaultError
from tests.fakes.imports import extra_words, fates, imported, one_draft, values


def preset(lines: str) -> str:
    """Return presets with one model."""
    return f"[a]\nmodel = /m/x\n{lines}\n"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("c = 4096", "ctx", 4096),
        ("ctx-size = 4096  # tokens", "ctx", 4096),
        ("LLAMA_ARG_CTX_SIZE = 4096", "ctx", 4096),
        ("n_gpu_layers = 99", "llama-server.gpu_layers", "all"),
        ("fa = on", "llama-server.flash_attn", True),
        ("LLAMA_ARG_N_PARALLEL = 2", "parallel", 2),
        ("embedding = true", "llama-server.embedding", True),
        ("LLAMA_ARG_THINK_BUDGET = 0", "thinking", "off"),
        ('alias = "b"', "served", ["a", "b"]),
        ("parallel = 2\nkv-unified", "llama-server.kv_unified", True),
    ],
)
def test_keys_of_presets(line: str, key: str, value: object) -> None:
    """Long, short and variable names are the same option."""
    assert values(one_draft(preset(line), "a.ini"))[key] == value


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("jinja = true", ["--jinja"]),
        ("jinja = 0", ["--no-jinja"]),
        ("no-perf = true", ["--no-perf"]),
        ("no-perf = off", ["--perf"]),
        ("swa-full = off", []),
        ("keep = 1", ["--keep", "1"]),
        ("jinja = maybe", ["--jinja", "maybe"]),
        ("sps = 0.5\ns = 1", ["-s", "1"]),
        ("OTHER_ARG = 1", ["--OTHER-ARG", "1"]),
    ],
)
def test_switches_of_presets(line: str, words: list[str]) -> None:
    """A switch is turned on or off by its value; every other option has it."""
    assert extra_words(one_draft(preset(line), "a.ini")) == words


def test_sections_of_presets() -> None:
    """The section for all models holds for each; a model's own value goes before it."""
    text = "version = 1\n[*]\nc = 4096\nt = 4\n[a]\nm = /m/a\nc = 8192\nload-on-startup = true\nmodels-max = 1\n[b]\nm = /m/b\n"
    first, second = imported(text, "a.ini").drafts
    assert (values(first)["ctx"], values(second)["ctx"]) == (8192, 4096)
    assert values(first)["llama-server.threads"] == values(second)["llama-server.threads"] == 4
    told = fates(first, DispositionKind.CHANGED)
    assert {"load-on-startup = true", "models-max = 1"} <= told.keys()
    assert values(first)["gateway.switch"] == "on-request"


def test_presets_that_are_too_long() -> None:
    """Presets of more than a quarter of a megabyte are refused when they are read by themselves."""
    with pytest.raises(ImportFaultError, match="more than 256 KiB"):
        list(read_presets("x" * (256 * 1024 + 1), None))


SWAP = """
startPort: {port}
macros: {{"m": "/opt/llama-server --port ${{PORT}}", n: 4096, nested: "-c ${{n}}", list: [1]}}
models:
  "A b":
    cmd: |
      # a comment
      ${{m}} -m /m/${{MODEL_ID}}.gguf ${{nested}} \\
      {more}
"""


def swap(more: str = "", port: str = "9000", keys: str = "") -> str:
    """Return a configuration of llama-swap with one model."""
    return SWAP.format(port=port, more=more) + keys


def test_macros_and_ports_of_llama_swap() -> None:
    """Macros stand for macros and for the model's own values; ports count up from the first."""
    keys = values(one_draft(swap(), "a.yaml"))
    assert (keys["ctx"], keys["port"], keys["served"]) == (4096, 9000, ["A-b"])
    assert values(one_draft(swap(port="70000"), "a.yaml"))["port"] == 5800
    assert values(one_draft(swap(port="[1]"), "a.yaml"))["port"] == 5800


def test_keys_of_a_model_of_llama_swap() -> None:
    """Aliases, variables and filters are the profile's; the rest is told."""
    keys = """
    name: "A model"
    aliases: [x, {id: y}, [z]]
    useModelName: w
    env: ["A=${MODEL_ID}", [1], "B=$1"]
    checkEndpoint: none
    ttl: 60
    proxy: http://localhost:1
    filters:
      strip_params: "temperature, model,,top_p"
      setParams: {model: x, top_k: 20, seed: "5", a: {b: [1.5, true, x, ~]}, c: "${n}"}
      setParamsByID: {x: {}}
"""
    draft = one_draft(swap(keys=keys), "a.yaml")
    found = values(draft)
    assert found["served"] == ["A-b", "x", "y", "w"]
    assert (found["env.A"], found["env.B"], found["description"]) == ("A b", "$1", "A model")
    assert found["gateway.strip"] == ["temperature", "top_p"]
    assert found["gateway.set"] == {
        "top_k": 20,
        "seed": "5",
        "a": {"b": [1.5, True, "x", None]},
        "c": 4096,
    }
    dropped = fates(draft, DispositionKind.DROPPED)
    assert {"ttl", "filters.setParamsByID"} <= dropped.keys()


def test_filters_of_llama_swap_may_be_nonsense() -> None:
    """Filters that are no tables change nothing."""
    for keys in (
        "    filters: 1\n",
        "    filters: {setParams: 1, stripParams: [a]}\n",
        "    aliases: a\n    env: {a: b}\n    macros: 1\n",
    ):
        assert "gateway.set" not in values(one_draft(swap(keys=keys), "a.yaml"))
    assert values(one_draft(swap(keys="    checkEndpoint: /ok\n"), "a.yaml"))["port"] == 9000


@pytest.mark.parametrize(
    ("more", "reason"),
    [("-ngl ${none}", "no such macro"), ("-ngl ${env.LAYERS}", "taken from outside the file")],
)
def test_macros_without_a_value(more: str, reason: str) -> None:
    """A macro that the file does not have leaves its option out."""
    dropped = fates(one_draft(swap(more), "a.yaml"), DispositionKind.DROPPED)
    assert reason in dropped[more]


@pytest.mark.parametrize(
    ("macros", "reason"),
    [
        ('{a: "${b}", b: "${a}"}', "macros stand for each other without end"),
        (
            '{a: "' + "${b}" * 2000 + '", b: "' + "x" * 2000 + '"}',
            "its macros make more than 256 KiB",
        ),
        ('{a: "${a}${a}"}', "its macros make more than 256 KiB"),
    ],
)
def test_macros_that_explode(macros: str, reason: str) -> None:
    """Macros that would make endless text are refused."""
    with pytest.raises(ImportFaultError, match=reason):
        imported(f"macros: {macros}\nmodels: {{m: {{cmd: '${{a}}'}}}}", "a.yaml")

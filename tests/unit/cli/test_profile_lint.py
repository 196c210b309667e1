"""Verb `appliance profile lint`, and the warnings of `profile validate`."""

import io
import json
from pathlib import Path

import pytest

from appliance.cli.argument_parser import build_parser
from appliance.cli.arguments import Arguments
from appliance.cli.output_reference import OUTPUTS
from appliance.cli.terminal import Streams, Terminal
from appliance.cli.verbs import profile
from tests.fakes.cli_box import CliBox, Ended
from tests.fakes.cli_call import call
from tests.fakes.profile_texts import MINIMAL
from tests.fakes.schema_validator import violations

SCHEMA = next(one for one in OUTPUTS if one.name == "profile-lint")
ASYMMETRIC = f"kv = {{ k = 'q8_0', v = 'q4_0' }}\n{MINIMAL['llama-server']}"
GARBLING = f"kv = 'q4_0'\n{MINIMAL['llama-server'].replace('8100', '8109')}"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliBox:
    box = CliBox(tmp_path)
    box.install()
    for name, value in box.environment.items():
        monkeypatch.setenv(name, value)
    # A machine that has GPUs shows them to no test.
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return box


def lint(box: CliBox, *words: str, **profiles: str) -> Ended:
    for name, text in profiles.items():
        (box.root / "profiles" / f"{name}.toml").write_text(text)
    return call("profile", "lint", *words)


def test_a_trap_is_told_with_all_that_is_known(box: CliBox) -> None:
    """Each trap has its statement, what is there, the key to change, the source and its day; status 1."""
    ended = lint(box, a=ASYMMETRIC)
    assert ended.status == 1
    assert ended.out.splitlines() == [
        "a.toml: 1 trap",
        (
            "  asymmetric-kv: attention with keys and values of different types runs on the CPU in a usual CUDA build,"
            " and prompts take 8 to 45 times as long"
        ),
        "    here: keys are q8_0, values q4_0",
        "    change kv: use one type for both, or a build with GGML_CUDA_FA_ALL_QUANTS",
        "    source: llama.cpp issues #24485, #27109, #28455 (ggml-cuda/fattn.cu) (checked 2026-11-25)",
    ]


def test_a_profile_without_traps(box: CliBox) -> None:
    """No trap is status 0, and a trap that is allowed is none."""
    ended = lint(box, "b", a=ASYMMETRIC, b=f"allow_traps = ['asymmetric-kv']\n{ASYMMETRIC}")
    assert (ended.status, ended.out) == (0, "b.toml: no trap\n  allowed: asymmetric-kv\n")


def test_a_file_anywhere_and_a_wrong_one(box: CliBox, tmp_path: Path) -> None:
    """A file is linted before it is put in place; a faulty one is status 78, and the others are linted."""
    file = tmp_path / "new.toml"
    file.write_text(ASYMMETRIC)
    ended = lint(box, str(file), "bad", bad="prot = 1")
    assert ended.status == 78
    assert ended.out.startswith(f"{file}: 1 trap\n")
    assert 'bad.toml:1: unknown key "prot"' in ended.err
    assert lint(box, "nobody").status == 4


def test_a_file_with_the_name_of_a_profile(box: CliBox, tmp_path: Path) -> None:
    """A file is linted by itself, also beside the installed profile of the same name."""
    file = tmp_path / "a.toml"
    file.write_text(ASYMMETRIC)
    ended = lint(box, "a", str(file), a=MINIMAL["llama-server"])
    assert ended.status == 1
    assert ended.out.startswith(f"a.toml: no trap\n{file}: 1 trap\n")


def test_an_empty_box(box: CliBox) -> None:
    """A box without profiles says so."""
    ended = lint(box)
    assert (ended.status, ended.out, ended.err) == (0, "", "there is no profile to check\n")


def test_gpus_that_cannot_be_read_are_told(box: CliBox) -> None:
    """Traps that only the GPUs would tell are named, with the reason, and are no failure."""
    ended = lint(box, a=GARBLING)
    assert ended.status == 0
    first, second = ended.out.splitlines()
    assert first == "a.toml: no trap"
    assert second.startswith("  not checked: q4-0-cache-on-blackwell: ")


def test_json_has_the_same(box: CliBox) -> None:
    """--json has every field of a trap, the GPUs that were looked at and why none could be."""
    ended = lint(box, "--json", a=ASYMMETRIC, b=GARBLING, bad="prot = 1")
    assert ended.status == 78
    document = json.loads(ended.out)
    a, b, bad = document["profiles"]
    assert (a["file"], a["ok"], a["error"], a["build"]) == ("a.toml", True, None, None)
    (trap,) = a["traps"]
    assert (trap["trap"], trap["keys"], trap["detail"]) == (
        "asymmetric-kv",
        ["kv"],
        "keys are q8_0, values q4_0",
    )
    assert (trap["builds"], trap["certain"], trap["checked"]) == ("all builds", True, "2026-11-25")
    assert b["unchecked"] == ["q4-0-cache-on-blackwell"]
    assert (bad["ok"], bad["traps"]) == (False, [])
    assert violations(document, SCHEMA.schema()) == []
    assert document["gpus"] == []
    assert document["gpu_problem"]


def test_validate_warns_of_traps(box: CliBox) -> None:
    """A profile with a trap is valid; its sentence is among the warnings, once for each profile."""
    for name, text in {"a": ASYMMETRIC, "b": GARBLING}.items():
        (box.root / "profiles" / f"{name}.toml").write_text(text)
    document = json.loads(call("profile", "validate", "--json").out)
    warnings = [[w for w in entry["warnings"] if ": trap " in w] for entry in document]
    assert [len(found) for found in warnings] == [1, 0]
    assert warnings[0][0].startswith("a: trap asymmetric-kv: attention with keys")


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_lint_fits_the_screen(box: CliBox, columns: int) -> None:
    """Lines break between words on a terminal, at 40 columns too, and a terminal of ASCII gets ASCII."""
    (box.root / "profiles" / "a.toml").write_text(ASYMMETRIC)
    screen, words = io.StringIO(), ("profile", "lint", "a")
    terminal = Terminal(stream=screen, interactive=True, unicode=False, columns=columns)
    arguments = build_parser(words).parse_args(words, Arguments())
    assert profile.run(arguments, Streams(out=terminal, err=terminal)) == 1
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert screen.getvalue().isascii()

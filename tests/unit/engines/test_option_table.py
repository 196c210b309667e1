"""Tables of options: what is written is found again, and a command line is read by them."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.engines import ENGINES
from appliance.engines.shared.invocation import InvocationContext
from appliance.engines.shared.option_table import FlagForm, ValueKind, flag, option_table
from appliance.model.quantities import size_bytes
from appliance.model.spec import Profile
from appliance.system.profile_files.loading import load_profile

BOXES = Path(__file__).parents[2] / "pins" / "boxes" / "engines"
TYPED = {
    name: load_profile(BOXES / f"every-{stem}-key.toml")
    for name, stem in (("llama-server", "llama"), ("vllm", "vllm"), ("sglang", "sglang"))
}
EXCLUSIVE = {"llama-server.load_mode", "llama-server.n_cpu_moe"}
"""Keys that another one in that profile excludes."""
OURS = {
    *(
        "--host",
        "--port",
        "--uds",
        "--fit",
        "--log-verbosity",
        "--metrics",
        "--offline",
        "--cors-origins",
    ),
    *("--no-cors-credentials", "--allowed-origins", "--enable-metrics"),
    *("--enable-prompt-tokens-details", "--enable-cache-report"),
}
UNTYPED = {"--poll", "--no-warmup", "--seed", "--stream-interval"}
OTHER_NAMES = {"--cuda-graph-backend-decode", "--cuda-graph-backend-prefill"}
"""Options by which a build of today takes a key whose flag has an older name."""


def arguments(profile: Profile) -> tuple[str, ...]:
    """Arguments of a profile's engine."""
    return ENGINES[profile.engine].invocation(profile, InvocationContext()).argv


def document(engine: str) -> Mapping[str, Any]:
    """The file of the profile with every key of an engine."""
    stem = engine.partition("-")[0]
    return tomllib.loads((BOXES / f"every-{stem}-key.toml").read_text())


@pytest.mark.parametrize("engine", TYPED)
def test_every_key_of_an_engine_is_in_one_profile(engine: str) -> None:
    """The profile with every key has no key less than the engine's table, apart from contradictions."""
    table = ENGINES[engine].option_table
    own = {o.key for o in table.options if o.key.startswith(f"{engine}.")}
    assert own - {f"{engine}.{key}" for key in document(engine)[engine]} <= EXCLUSIVE


@pytest.mark.parametrize("engine", TYPED)
def test_an_option_that_is_written_is_in_the_table(engine: str) -> None:
    """No code of an engine writes an option that its table does not name."""
    table = ENGINES[engine].option_table
    written = {word for word in arguments(TYPED[engine]) if word.startswith("--")}
    assert {w for w in written if table.named(w) is None} <= OURS | UNTYPED | OTHER_NAMES


@pytest.mark.parametrize("engine", TYPED)
def test_what_is_written_is_read_back(engine: str) -> None:
    """An option with one form has the same value once it is read from the command line."""
    table, argv = ENGINES[engine].option_table, arguments(TYPED[engine])
    values, read = document(engine)[engine], 0
    for place, word in enumerate(argv):
        option = table.named(word)
        if option is None or option.flag.form in {
            FlagForm.DERIVED,
            FlagForm.SWITCH,
            FlagForm.EITHER,
        }:
            continue
        top, _, key = option.key.partition(".")
        if top == engine:
            assert same(option.read(argv[place + 1]), values[key], option.flag.form), word
            read += 1
    assert read > 10


def same(found: object, written: object, form: FlagForm) -> bool:
    """Whether a value that was read is the one in a file, or an item of it."""
    if form is FlagForm.REPEATED and isinstance(found, list) and isinstance(written, list):
        return found[0] in written
    if isinstance(written, bool) and isinstance(found, str):
        return found == ("on" if written else "off")
    if isinstance(written, str) and isinstance(found, str) and size_bytes(written):
        return size_bytes(found) == size_bytes(written)
    return found == written


TABLE = option_table(
    "vllm",
    ENGINES["vllm"].options,
    [
        ("a", flag("--a", kind=ValueKind.WHOLE)),
        ("b", flag("--b", form=FlagForm.COMMAS, kind=ValueKind.NUMBER)),
        ("c", flag("--c", form=FlagForm.JSON)),
        ("d", flag("--d", "-d", form=FlagForm.EITHER, contrary=("--no-d",), kind=ValueKind.SWITCH)),
        ("e", flag("--e", form=FlagForm.REPEATED)),
    ],
)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("--a", "7", 7),
        ("--b", "1,2.5", [1.0, 2.5]),
        ("--c", '{"x": [1]}', {"x": [1]}),
        ("-d", "on", True),
        ("--no-d", "FALSE", False),
        ("--e", "x=y", ["x=y"]),
        ("-tp", "2", 2),
        ("--kv-cache-memory-bytes", "1073741824", "1GiB"),
        ("--dtype", "half", "half"),
    ],
)
def test_a_word_of_a_command_line_is_a_value(name: str, text: str, value: object) -> None:
    """Each kind of value is read in the form that a file has it."""
    option = TABLE.named(name)
    assert option is not None
    assert option.read(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("--a", "x"),
        ("--b", "1,x"),
        ("--c", "["),
        ("--c", "[1]"),
        ("--c", '{"a":' * 100_000),
        ("-d", "maybe"),
    ],
)
def test_a_word_without_meaning_is_an_error(name: str, text: str) -> None:
    """No text on a command line is more than a ValueError."""
    option = TABLE.named(name)
    assert option is not None
    with pytest.raises(ValueError, match=r"."):
        option.read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3F5", [0, 2, 4, 5, 6, 7, 8, 9]), ("0x1", [0]), ("g", None), ("F" * 300, None)],
)
def test_a_mask_is_read(text: str, value: list[int] | None) -> None:
    """A mask of CPUs names as many as llama.cpp has room for."""
    option = ENGINES["llama-server"].option_table.named("-C")
    assert option is not None
    if value is None:
        with pytest.raises(ValueError, match="mask"):
            option.read(text)
    else:
        assert option.read(text) == value


def test_messages_name_the_key_of_a_table() -> None:
    """The key of an engine's own table is named with its table, and by its name in the file."""
    keys = ENGINES["llama-server"].option_table.keys
    assert keys["-cram"] == "[llama-server] cache_ram"
    assert keys["--no-kv-offload"] == "[llama-server] kv_offload"
    assert keys["-md"] == "speculative.model"
    assert ENGINES["command"].option_table.options == ()

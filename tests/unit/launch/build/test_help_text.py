"""Options read in a program's help."""

import random

import pytest

from appliance.launch.build.help_text import HelpText
from appliance.wire.build_record import MOST_OPTIONS
from tests.fakes import scripted_llama_server as scripted

# In the format of llama.cpp's own help; the entries are the test's.
TEXT = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the context; -x is no entry
                                        --neither-is-this one: it is a description
                                        (env: LLAMA_ARG_CTX_SIZE)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to offload
--cpu-strict <0|1>                      strict placement
-sm,   --split-mode {none,layer,row,tensor}
                                        how to split
-dev,  --device <dev1,dev2,..>          devices
-ot,   --override-tensor <tensor name pattern>=<buffer type>,...
                                        buffer types
--spec-type none,draft-mtp,ngram-mod
                                        drafts
--temp, --temperature N                 temperature (default: -0.5)
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
                                        (env: LLAMA_ARG_DRAFT_MAX)

-- not an option
--- neither
-1                                      nor this
"""


def test_the_entries_of_a_help_are_its_options() -> None:
    """Names, whether a value follows, and the values where they are listed."""
    found = HelpText(TEXT).options
    assert found == {
        **dict.fromkeys(("-h", "--help", "--usage")),
        **dict.fromkeys(("-c", "--ctx-size"), ()),
        **dict.fromkeys(("-kvo", "--kv-offload", "-nkvo", "--no-kv-offload")),
        "--cpu-strict": ("0", "1"),
        **dict.fromkeys(("-sm", "--split-mode"), ("none", "layer", "row", "tensor")),
        **dict.fromkeys(("-dev", "--device"), ()),
        **dict.fromkeys(("-ot", "--override-tensor"), ()),
        "--spec-type": ("none", "draft-mtp", "ngram-mod"),
        **dict.fromkeys(("--temp", "--temperature"), ()),
    }


def test_removed_options_are_not_options() -> None:
    """llama.cpp lists options that it refuses, with what to write instead."""
    removed = HelpText(TEXT).removed
    assert removed.keys() == {"--draft", "--draft-n", "--draft-max"}
    assert removed["--draft"] == "use --spec-draft-n-max or --spec-ngram-mod-n-max"


def test_the_help_of_argparse_is_read_too() -> None:
    """Python's own format has the same columns, indented by two."""
    text = "options:\n  -h, --help  show this\n  --port PORT, -p PORT\n      the port\n"
    found = HelpText(text).options
    assert found["--help"] is None
    assert found["--port"] == ()


@pytest.mark.parametrize("build", [scripted.BEFORE, scripted.BETWEEN, scripted.AFTER])
def test_the_scripted_builds_tell_their_options(build: tuple[str, list[list[str]]]) -> None:
    """The programs of the tests print what is read here."""
    found = HelpText(scripted.help_of(build[1]))
    names = {n.strip() for head, _ in build[1] for n in head.split(" ") if n.startswith("-")}
    assert {n.rstrip(",") for n in names} == {*found.options, *found.removed}


def test_garbage_has_no_options() -> None:
    """Bytes that mean nothing, with dashes among them, take no time and give little."""
    noise = random.Random(7)  # noqa: S311 - the same noise in each run
    for _ in range(50):
        text = "".join(noise.choice("-- ab,|<>{}[]\n\t\x00é=") for _ in range(2000))
        assert all(name.startswith("-") for name in HelpText(text).options)


@pytest.mark.parametrize(
    "text",
    [
        "-" * (1 << 20),
        "-a" * (1 << 19),
        "-a," * (1 << 18),
        "-a, " * (1 << 18),
        "--a " + "b|" * (1 << 19),
        ("--a" + " " * 40 + "x\n") * 20_000,
        "--a x\n" + (" " * 40 + "word\n") * 20_000,
    ],
    ids=["dashes", "names", "commas", "blanks", "values", "entries", "description"],
)
def test_a_mebibyte_is_read_at_once(text: str) -> None:
    """The parser takes linear time whatever the text is made of."""
    assert len(HelpText(text).options) <= MOST_OPTIONS


def test_no_more_options_are_kept_than_a_record_holds() -> None:
    """A help of a hundred thousand options is cut."""
    text = "".join(f"--a{i}{' ' * 30}x\n" for i in range(30_000))
    assert len(HelpText(text).options) == MOST_OPTIONS

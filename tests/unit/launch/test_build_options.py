"""Options read in a program's help."""

import ast
import random
import time
from pathlib import Path

import pytest

from appliance.launch.build_options import DeclaredOptions, Distribution, HelpText
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


BY_FIELDS = """
class Base:
    chat_template: str | None = None
    @classmethod
    def add(cls, parser):
        for key, value in get_kwargs(cls).items():
            group.add_argument(*flags, f"--{key.replace('_', '-')}", **value)

class Frontend(Base):
    port: int = 8000
    enable_docs: bool = False

class Other:
    secret: str = ""
"""
BY_KWARGS = """
class EngineArgs:
    enforce_eager: bool = ModelConfig.enforce_eager
    hf_token: bool | str | None = None
    stat_loggers: list[str] | None = None
    def add(parser):
        group.add_argument("--enforce-eager", **model_kwargs["enforce_eager"])
        group.add_argument("--hf-token", "-ht", **model_kwargs["hf_token"])
        group.add_argument("--disable-log", action=argparse.BooleanOptionalAction)
        group.add_argument("model_tag", nargs="?")
"""
BY_MARKS = """
class Spec(msgspec.Struct):
    _NS_PATH = "spec"
    draft_path: A[Optional[str], Arg(help="x", aliases=["--draft"])] = None
    tp: Annotated[int, Arg(cli_name="--tp-size")] = 1
    steps: A[Optional[int], "The number"] = None
    loud: A[bool, f"Whether {x}"] = False
    merge: A[bool, Arg(action=argparse.BooleanOptionalAction)] = True
    hidden: A[str, Arg(no_cli=True)] = ""
    bare: A[str, other.Mark()] = ""
    plain: int = 0
"""
PAIRS = """
class EnableDisable(BooleanOptionalAction):
    _inverse_prefixes = {"--enable-": "--disable-", "--disable-": "--enable-"}
    other = {"a": "b", **more}
"""


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        ([BY_FIELDS], "--chat-template --port --enable-docs --no-enable-docs"),
        (
            [BY_KWARGS],
            "--enforce-eager --no-enforce-eager --hf-token -ht --disable-log --no-disable-log",
        ),
        ([BY_MARKS], "--draft-path --draft --tp-size --steps --loud --merge --no-merge"),
        (
            [PAIRS, BY_KWARGS, BY_FIELDS],
            (
                "--enforce-eager --no-enforce-eager --hf-token -ht --disable-log --no-disable-log"
                " --enable-log --chat-template --port --enable-docs --no-enable-docs --disable-docs"
            ),
        ),
        (['if x:\n    parser.add_argument("--top", "-t")\n'], "--top -t"),
        (['parser.add("--a")\nadd_argument("--b")\np.add_argument(f"--c{d}")\n'], ""),
        ([""], ""),
    ],
)
def test_each_form_is_read(sources: list[str], names: str) -> None:
    """Names in calls, fields of classes that register them, and fields with marks; nothing beside."""
    assert set(DeclaredOptions(sources).names()) == set(names.split())


@pytest.mark.parametrize("broken", ["match = = 1\n", "x = \0\n", "(" * 500 + "\n", "-" * 90_000])
def test_a_source_that_cannot_be_parsed_is_read_by_patterns(broken: str) -> None:
    """The next Python's syntax, a NUL or nesting without end: literals and fields are taken as they stand."""
    source = f'class Args:\n    max_len: int = 0\n    p.add_argument("--uds")\n{broken}'
    with pytest.raises((SyntaxError, ValueError, RecursionError, MemoryError)):
        ast.parse(source)
    assert set(DeclaredOptions([source]).names()) == {"--max-len", "--uds"}


def test_a_source_of_a_mebibyte_is_read_in_linear_time() -> None:
    """Twice the source takes about twice the time, in calls, in fields and where nothing can be parsed."""
    for line in (
        '    g.add_argument("--x")\n',
        '    f: A[int, "x"] = 1\n',
        "    f: int = = 1\n",
    ):
        took = [cpu_s("class C:\n" + line * count) for count in (4_000, 16_000)]
        assert took[1] < 12 * took[0] + 0.5


def cpu_s(source: str) -> float:
    """Return the CPU seconds of one reading."""
    began = time.process_time()
    assert list(DeclaredOptions([source]).names())
    return time.process_time() - began


SOURCE = """
class Args:
    def add(parser):
        group.add_argument("--served-model-name", **kwargs)
        group.add_argument('--uds', '--port', help="not --this-one")
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The directory of packages of an environment with vllm 0.33.0."""
    packages = tmp_path / "venv/lib/python3.12/site-packages"
    (packages / "vllm-0.33.0+cu128.dist-info").mkdir(parents=True)
    (packages / "vllm/engine").mkdir(parents=True)
    (packages / "vllm/engine/arg_utils.py").write_text(SOURCE)
    (tmp_path / "venv/bin").mkdir()
    return packages


def found(program: Path) -> Distribution:
    sources = ("vllm/engine/arg_utils.py", "vllm/gone.py", "vllm/fields/", "vllm/none/")
    return Distribution(str(program), "vllm", sources)


@pytest.mark.parametrize(
    "text",
    [
        "#!{venv}/bin/python\nimport vllm\n",
        "#! {venv}/bin/python3.12\n",
        "#!/bin/sh\n'''exec' {venv}/bin/python3 \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"{venv}/bin/python3\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_the_first_line_of_a_script_leads_to_its_package(packages: Path, text: str) -> None:
    """The interpreter that installers write, also where its path is too long for a first line."""
    venv = packages.parents[2]
    script = venv / "bin/vllm"
    script.write_text(text.format(venv=venv))
    build = found(script).build(5.0)
    assert (build.version, build.is_complete, build.asked_unix_s) == ("0.33.0+cu128", False, 5.0)
    assert build.has("--served-model-name")
    assert build.has("--uds")
    assert build.has("--this-one") is False


def test_an_interpreter_is_asked_for_its_own_packages(packages: Path) -> None:
    """A virtual environment's interpreter is a link, which is not followed."""
    python = packages.parents[2] / "bin/python3"
    python.symlink_to("/usr/bin/python3")
    distribution = found(python)
    assert distribution.build(0.0).version == "0.33.0+cu128"
    metadata = packages / "vllm-0.33.0+cu128.dist-info"
    assert distribution.files[0] == str(metadata)
    assert str(packages / "vllm/engine/arg_utils.py") in distribution.files


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF" + bytes(8192), b"#!/usr/bin/env python3\n", b"#!" + b"/" * 5000]
)
def test_another_program_has_no_package(tmp_path: Path, content: bytes) -> None:
    """A program whose environment is not known leaves nothing to guess."""
    program = tmp_path / "vllm"
    program.write_bytes(content)
    build = found(program).build(0.0)
    assert build.problem == "no package vllm in the environment of its interpreter"
    assert not found(program).files


def test_a_missing_program_has_no_package(tmp_path: Path) -> None:
    """Neither has a directory."""
    assert found(tmp_path / "missing").build(0.0).problem
    assert found(tmp_path).build(0.0).problem


def test_a_folder_of_modules_is_read(packages: Path) -> None:
    """Every module in it declares options, and nothing else in it does; its stamp is the folder's."""
    folder = packages / "vllm/fields"
    folder.mkdir()
    (folder / "memory.py").write_text('class M:\n    kv_dtype: A[str, "type"] = "auto"\n')
    (folder / "notes.txt").write_text('parser.add_argument("--note")\n')
    distribution = found(packages.parents[2] / "bin/python")
    build = distribution.build(0.0)
    assert (build.has("--kv-dtype"), build.has("--note")) == (True, False)
    assert f"{folder}/" in distribution.files


def test_sources_without_the_options_of_a_server_tell_nothing(packages: Path) -> None:
    """A release that has moved its sources is a build that is not known, rather than one without options."""
    (packages / "vllm/engine/arg_utils.py").write_text('parser.add_argument("--port")\n')
    build = found(packages.parents[2] / "bin/python").build(0.0)
    assert (build.version, build.options) == ("0.33.0+cu128", {})
    assert build.problem == "the sources of vllm 0.33.0+cu128 do not declare --served-model-name"


def test_a_source_without_end_is_not_read(packages: Path) -> None:
    """A source of two mebibytes declares no options."""
    source = packages / "vllm/engine/arg_utils.py"
    source.write_text(SOURCE + "#" * (2 << 20))
    python = packages.parents[2] / "bin/python"
    build = found(python).build(0.0)
    assert build.version
    assert not build.options

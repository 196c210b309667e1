"""Options that Python sources declare, in each form in which the engines write them."""

import ast
import time

import pytest

from appliance.launch.build.declared_options import DeclaredOptions

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

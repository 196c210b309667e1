"""Builds of engines: which options and values they have."""

import pytest

from appliance.model.engine_build import (
    EngineBuild,
    canonical,
    distribution_question,
    either,
    is_option,
    lacks,
    spelled,
)

BUILD = EngineBuild(options={"--spec-type": ("none", "mtp"), "--ctx-size": (), "--metrics": None})


@pytest.mark.parametrize(
    ("option", "value", "has"),
    [
        ("--metrics", "", True),
        ("--ctx_size", "4096", True),
        ("--ctx-size=4096", "", True),
        ("--spec-type", "mtp", True),
        ("--spec-type", "none,mtp", True),
        ("--spec-type", "none,eagle", False),
        ("--mlock", "", False),
    ],
)
def test_a_build_has_the_options_and_values_that_it_lists(
    option: str, value: str, *, has: bool
) -> None:
    """Values count only where the program lists them; dashes and underscores are one."""
    assert BUILD.has(option, value) is has


def test_nothing_is_known_of_a_program_that_did_not_answer() -> None:
    """A build without options tells neither that it has one nor that it lacks one."""
    assert EngineBuild(problem="it did not answer in time").has("--metrics") is None


@pytest.mark.parametrize(
    ("word", "option"),
    [("--a_b=c_d", "--a-b"), ("-ngl", "-ngl"), ("-o_d", "-o_d"), ("--", "--")],
)
def test_an_option_has_one_name(word: str, option: str) -> None:
    """Long options may be written with underscores and with a value."""
    assert canonical(word) == option


@pytest.mark.parametrize(
    ("word", "is_one"),
    [("-c", True), ("--x", True), ("-1", False), ("-.5", False), ("-", False), ("x", False)],
)
def test_negative_numbers_are_no_options(word: str, *, is_one: bool) -> None:
    """A number with a sign is a value, as is a dash alone."""
    assert is_option(word) is is_one


def test_a_package_is_asked_by_name_and_modules() -> None:
    """The question to a package names it and the modules that declare options."""
    assert distribution_question("vllm", "vllm/a.py") == "distribution:vllm:vllm/a.py"


LOCK = either(("--load-mode", "mmap+mlock"), ("--mlock",))
CORS = either(("--cors-origins", "http://x"), ())
DRAFTS = either(("--spec-type", "draft-mtp"))
COMMAND = ("/l", "--ctx-size", "1", *LOCK, *CORS, *DRAFTS, "--port", "8021")
NEW = EngineBuild(
    options={
        "--ctx-size": (),
        "--port": (),
        "--load-mode": (),
        "--cors-origins": (),
        "--spec-type": ("none", "draft-mtp"),
    }
)
OLD = EngineBuild(
    options={"--ctx-size": (), "--port": (), "--mlock": None, "--spec-type": ("none",)}
)


def shown(command: tuple[str, ...], build: EngineBuild | None) -> str:
    return " ".join(spelled(command, build))


def test_each_build_is_started_in_its_own_words() -> None:
    """The first spelling that a build has is taken, and an empty one leaves the option out."""
    newest = "/l --ctx-size 1 --load-mode mmap+mlock --cors-origins http://x --spec-type draft-mtp"
    assert shown(COMMAND, NEW) == f"{newest} --port 8021"
    assert shown(COMMAND, OLD) == "/l --ctx-size 1 --mlock --spec-type draft-mtp --port 8021"


@pytest.mark.parametrize("build", [None, EngineBuild(problem="silent")])
def test_an_unknown_build_is_taken_for_the_newest(build: EngineBuild | None) -> None:
    """Of a build that told nothing, the first spelling is taken."""
    assert shown(COMMAND, build) == shown(COMMAND, NEW)


def test_a_command_without_spellings_stays() -> None:
    """Words apart from spellings are never changed, whatever the build has."""
    words = ("/l", "--strange", "+or", "+end", "-1")
    assert spelled(words, OLD) == words


def test_marks_that_do_not_end_are_kept_in_order() -> None:
    """Spellings without an end are taken like others."""
    assert spelled(("/l", "+either", "--mlock"), OLD) == ("/l", "--mlock")


def test_what_a_build_lacks_is_told_once() -> None:
    """A missing option, and a value that an option does not take; in spellings only if none fits."""
    command = (*COMMAND, "--moe-cache-mib", "1", "--moe_cache_mib=2", *either(("--x",), ("--y",)))
    found = [(lack.option, lack.value) for lack in lacks(command, OLD)]
    assert found == [("--spec-type", "draft-mtp"), ("--moe-cache-mib", ""), ("--x", "")]
    assert not lacks(COMMAND, NEW)
    assert not lacks(COMMAND, EngineBuild())


def test_a_value_that_begins_with_a_dash_is_no_option() -> None:
    """Where the help shows that an option takes a value, the next word is one."""
    assert not lacks(("/l", "--ctx-size", "--not-an-option", "--port", "1"), OLD)


def test_values_are_checked_in_spellings_alone() -> None:
    """An engine may take further values than it lists: a profile's own words are left alone."""
    assert not lacks(("/l", "--spec-type", "something-new"), OLD)
    assert lacks(("/l", *either(("--spec-type=something-new",))), OLD)[0].value == "something-new"


def test_without_a_complete_list_an_option_is_an_option() -> None:
    """A list from sources does not tell which options take a value."""
    build = EngineBuild(options={"--enforce-eager": ()}, is_complete=False)
    found = lacks(("/v", "--enforce-eager", "--gone", "x"), build)
    assert [lack.option for lack in found] == ["--gone"]


def test_the_choice_is_linear_in_the_length_of_a_command() -> None:
    """A command of a hundred thousand words is read within seconds."""
    command = ("/l", *(word for i in range(25_000) for word in either((f"--a{i}",), ("--mlock",))))
    assert spelled(command, OLD) == ("/l", *["--mlock"] * 25_000)


@pytest.mark.parametrize(
    ("command", "lacking"),
    [
        (("/opt/python3", "-m", "sglang.launch_server", "--port", "1", "--x"), ["--x"]),
        (("/opt/python", "-c", "x"), ["-c"]),
        (("/opt/llama", "-m", "m.gguf"), ["-m"]),
        ((), []),
    ],
)
def test_the_module_of_an_interpreter_is_no_option_of_the_engine(
    command: tuple[str, ...], lacking: list[str]
) -> None:
    """An engine that is started as a module of Python lacks nothing for it."""
    assert [lack.option for lack in lacks(command, NEW)] == lacking

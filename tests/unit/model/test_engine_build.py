"""Builds of engines: which options and values they have."""

import pytest

from appliance.model.engine_build import (
    EngineBuild,
    canonical,
    distribution_question,
    is_option,
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

"""Findings on options that the build of an engine lacks."""

from dataclasses import replace

import pytest

from appliance.engines import ENGINES
from appliance.model.engine_build import EngineBuild, either
from appliance.switch.engine_findings import (
    build_findings,
    is_asked,
    lacking_options,
    unasked_sentence,
)
from appliance.switch.preflight_facts import Level
from tests.fakes.profiles import applied
from tests.fakes.trap_samples import spec_of_profile

COMMAND = (
    *("/opt/l", "--port", "1", "--moe-cache-mib", "512", "--top-kk", "9"),
    *either(("--spec-type", "draft-mtp")),
)
PROFILE = replace(applied("l", "cpu"), engine="llama-server", binary="/opt/l", command=COMMAND)
BUILD = EngineBuild(
    version="b9000 (abc)",
    options={"--port": (), "--top-k": (), "--spec-type": ("none", "draft-eagle3")},
    removed={"--moe-cache-mib": "use --cache-moe"},
)


def found(build: EngineBuild | None) -> list[tuple[str, str]]:
    return [(f.level, f.text) for f in build_findings(PROFILE, build)]


def test_each_lacking_option_is_refused_with_its_key_and_the_way_out() -> None:
    """The engine's own words come first, then the nearest option, or the values that there are."""
    program = "which /opt/l (b9000 (abc)) does not have"
    assert found(BUILD) == [
        (Level.OK, "llama-server b9000 (abc), /opt/l"),
        (
            Level.REFUSE,
            (
                f"[llama-server] expert_cache_mib in l.toml needs --moe-cache-mib, {program}"
                " (its help says: use --cache-moe): install another build, or change"
                " [llama-server] expert_cache_mib"
            ),
        ),
        (
            Level.REFUSE,
            (
                f"extra_args in l.toml needs --top-kk, {program} (the nearest is --top-k):"
                " install another build, or change extra_args"
            ),
        ),
        (
            Level.REFUSE,
            (
                f"speculative.method in l.toml needs --spec-type draft-mtp, {program}"
                " (it takes none, draft-eagle3): install another build, or change speculative.method"
            ),
        ),
    ]


@pytest.mark.parametrize("name", sorted(n for n, e in ENGINES.items() if e.build_question))
def test_an_option_of_the_appliances_own_is_not_blamed_on_the_profile(name: str) -> None:
    """Each option of a command that the profile does not name is told as what it is, for every engine."""
    command = spec_of_profile(name).applied.command
    profile = replace(PROFILE, engine=name, command=command)
    build = EngineBuild(version="b1", options={"--none": ()})
    texts = [f.text for f in build_findings(profile, build) if f.level is Level.REFUSE]
    assert not [text for text in texts if text.startswith("extra_args")]


def test_the_appliances_own_option_is_told_as_such() -> None:
    """The finding names no key to change."""
    profile = replace(PROFILE, command=("/opt/l", "--offline"))
    (_, lack) = build_findings(profile, BUILD)
    assert lack.text == (
        "the appliance gives --offline to each llama-server, which /opt/l (b9000 (abc)) does not have:"
        " install another build"
    )


def test_options_that_nobody_compared_are_told() -> None:
    """A profile that nobody has switched to is not called fine without a word."""
    assert unasked_sentence(PROFILE, BUILD) == ""
    assert unasked_sentence(replace(PROFILE, engine="command"), None) == ""
    assert "appliance switch l --dry-run" in unasked_sentence(PROFILE, None)


def test_a_list_that_may_lack_some_only_warns() -> None:
    """Options that were read in sources refuse nothing."""
    build = EngineBuild(options={"--port": ()}, is_complete=False)
    levels = {level for level, _ in found(build)}
    assert levels == {Level.WARN}
    assert "/opt/l does not seem to have" in found(build)[0][1]


def test_of_many_options_five_are_told() -> None:
    """A profile for another engine does not fill the screen."""
    profile = replace(PROFILE, command=tuple(f"--a{i}" for i in range(9)))
    texts = [f.text for f in build_findings(profile, BUILD)]
    assert len(texts) == 7
    assert texts[-1] == "4 further options are not in this build either"


def test_a_program_that_told_nothing_is_a_warning() -> None:
    """The reason is shown without control characters."""
    problem = EngineBuild(problem="it did\x1b[2J not answer")
    assert found(problem) == [
        (Level.WARN, "the options of /opt/l are not known: it did\\x1b[2J not answer")
    ]


@pytest.mark.parametrize("build", [None, EngineBuild()])
def test_nothing_is_said_about_an_unknown_build(build: EngineBuild | None) -> None:
    """Neither a profile of an earlier release nor an engine that is never asked has findings."""
    assert not found(build)


def test_engines_of_other_programs_are_not_asked() -> None:
    """A command is any program; a manifest may name an engine of another release."""
    assert is_asked(PROFILE)
    assert not is_asked(replace(PROFILE, engine="command"))
    assert not is_asked(replace(PROFILE, engine="of-tomorrow"))


def test_lacking_options_are_listed_with_their_values() -> None:
    """An option that has another value lacks that value alone."""
    assert lacking_options(PROFILE, BUILD) == (
        "--moe-cache-mib",
        "--top-kk",
        "--spec-type draft-mtp",
    )
    strange = replace(PROFILE, engine="of-tomorrow", command=("/x", "--gone"))
    assert "extra_args in l.toml" in [f.text for f in build_findings(strange, BUILD)][1]

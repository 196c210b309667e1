"""Builds for which a trap holds."""

import pytest

from appliance.model.engine_build import EngineBuild
from appliance.profiles.linting.trap import ALL_BUILDS, BuildKey, BuildRange, build_key


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("b9596 (18ef86ece)", (9596,)),
        ("9596", (9596,)),
        ("b1 (18ef86ece)", None),
        ("0.33.0", (0, 33, 0)),
        ("v0.5.23.post1", (0, 5, 23)),
        ("0.28.1rc1.dev500+g51da0ca66", (0, 28, 1)),
        ("b", None),
        ("main", None),
        ("", None),
        ("9" * 100_000, None),
    ],
)
def test_a_version_has_numbers(version: str, key: BuildKey | None) -> None:
    """Counted builds of llama.cpp have one number, versions of Python packages several."""
    assert build_key(version) == key


@pytest.mark.parametrize(
    ("builds", "version", "holds"),
    [
        (ALL_BUILDS, "main", True),
        (BuildRange(since="b100"), "b100", True),
        (BuildRange(since="b100"), "b99 (abcdef0)", None),
        (BuildRange(since="b1000"), "b999", False),
        (BuildRange(until="b1000"), "b999", True),
        (BuildRange(until="b1000"), "b1000", False),
        (BuildRange(since="0.16", until="0.33.1"), "0.33.0", True),
        (BuildRange(since="0.16", until="0.33.1"), "0.33.1", False),
        (BuildRange(since="0.16"), "", None),
    ],
)
def test_a_range_holds_for_builds(builds: BuildRange, version: str, *, holds: bool | None) -> None:
    """The first build is part of a range, the last is not; a version without numbers is not known."""
    assert builds.holds(EngineBuild(version=version)) is holds


def test_a_build_that_is_not_known() -> None:
    """A build that nobody asked may be in any range, and is certain to be one of all builds."""
    assert BuildRange(until="b9").holds(None) is None
    assert ALL_BUILDS.holds(None) is True


@pytest.mark.parametrize(
    ("builds", "text"),
    [
        (ALL_BUILDS, "all builds"),
        (BuildRange(since="b1000"), "builds from b1000"),
        (BuildRange(until="0.33"), "builds before 0.33"),
        (BuildRange(since="b1", until="b2"), "builds from b1 until before b2"),
    ],
)
def test_a_range_has_words(builds: BuildRange, text: str) -> None:
    """People read from which build to which one."""
    assert builds.text == text

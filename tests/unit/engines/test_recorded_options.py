"""Options that the appliance types, refuses and writes, against the recorded lists of the engines' releases."""

import re
from dataclasses import replace
from typing import Final

import pytest

from appliance.engines import ENGINES
from tests.engine_options.comparison import Difference, differences, is_newer
from tests.engine_options.embedded_parameters import missing_parameters, set_parameters
from tests.engine_options.profiles import rendered_profiles
from tests.engine_options.recording import RecordedRelease, recorded, recorded_engines
from tests.programs import ROOT

PROFILES: Final = rendered_profiles()
PAGE: Final = ROOT / "docs/how-to/prove-a-real-engine.md"


def test_every_engine_with_options_has_a_recorded_release() -> None:
    """An engine whose options are typed or refused is compared, and each has a profile with every key."""
    assert set(recorded_engines()) == {e.name for e in ENGINES.values() if e.arguments is not None}
    written = {profile.engine for profile in PROFILES if profile.name.startswith("every-")}
    assert written == set(recorded_engines())


@pytest.mark.parametrize("engine", recorded_engines())
def test_a_release_has_what_the_appliance_knows(engine: str) -> None:
    """The recorded release has all that is typed, refused or written, apart from what is declared of other builds."""
    assert list(map(str, differences(recorded(engine), PROFILES))) == []


@pytest.mark.parametrize("engine", recorded_engines())
def test_a_recorded_list_is_dated_and_whole(engine: str) -> None:
    """A list says where it is from, and is no empty one, which would have every option missing."""
    release = recorded(engine)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", release.read_on)
    assert re.fullmatch(r"[0-9a-f]{64}", release.sha256)
    assert release.file.startswith(release.package.replace("-", "_"))
    assert release.sources
    assert len(release.options) > 300


def without(release: RecordedRelease, *names: str) -> RecordedRelease:
    """A release that lacks some options and variables."""
    gone = frozenset(names)
    return replace(release, options=release.options - gone, variables=release.variables - gone)


def of(found: tuple[Difference, ...], name: str) -> set[str]:
    """Owners of the differences on a name."""
    return {one.owner.partition(" ")[0] for one in found if one.name == name}


@pytest.mark.parametrize(
    ("engine", "name", "owners"),
    [
        ("vllm", "--max-model-len", {"key", "written"}),
        ("vllm", "--middleware", {"refused"}),
        ("vllm", "--allowed-origins", {"written"}),
        ("vllm", "VLLM_NO_USAGE_STATS", {"refused", "written"}),
        ("vllm", "--disable-prefix-caching", {"key"}),
        ("sglang", "--context-length", {"key", "written"}),
        ("sglang", "SGLANG_CACHE_DIR", {"written"}),
        ("llama-server", "--load-mode", {"key", "written"}),
        ("llama-server", "--spec-default", {"refused"}),
        ("ik-llama-server", "--mla-use", {"key", "written"}),
    ],
)
def test_a_renamed_option_is_found(engine: str, name: str, owners: set[str]) -> None:
    """An option that a release has no more is told of each part that knows it."""
    found = differences(without(recorded(engine), name), PROFILES)
    assert of(found, name) == owners


def test_what_is_declared_of_other_builds_has_to_be_missing() -> None:
    """A release that has an option of older builds, or of newer ones, makes the declaration wrong."""
    release = recorded("llama-server")
    more = replace(
        release, options=release.options | {"--mlock", "--moe-cache-mib", "--verbose-prompt"}
    )
    found = differences(more, PROFILES)
    assert of(found, "--mlock") == of(found, "--moe-cache-mib") == {"key"}
    assert of(found, "--verbose-prompt") == {"refused"}
    newer = replace(release, build="b11549")
    assert of(differences(newer, PROFILES), "--moe-cache-mib") == {"key", "written"}


def test_an_opposite_that_a_key_does_not_own_is_found() -> None:
    """A release with a new spelling that undoes a key leaves it open to extra_args."""
    release = recorded("sglang")
    more = replace(release, options=release.options | {"--enable-radix-cache"})
    (found,) = differences(more, PROFILES)
    assert (found.name, found.owner) == ("--enable-radix-cache", "key [sglang] disable_radix_cache")


def test_a_family_without_members_is_found() -> None:
    """Beginnings of options and of variables are refused for what there is, not for what there was."""
    release = recorded("vllm")
    gone = [n for n in release.options if n.startswith("--ssl-")]
    gone += [n for n in release.variables if n.startswith("VLLM_NIXL_")]
    found = differences(without(release, *gone), PROFILES)
    assert {one.name for one in found if one.owner.startswith("refused family")} == {
        "--ssl-",
        "VLLM_NIXL_",
    }


@pytest.mark.parametrize(
    ("build", "than", "newer"),
    [
        ("b11549", "b11434", True),
        ("b11434", "b11434", False),
        ("0.33", "0.32.1", True),
        ("2026-08-15", "2026-04-10", True),
        ("", "b1", False),
    ],
)
def test_builds_have_an_order(build: str, than: str, newer: object) -> None:
    """Numbers, releases and dates are compared part by part; an unknown build is older than all."""
    assert is_newer(build, than) is newer


def test_the_embedded_engine_has_every_parameter_that_is_set() -> None:
    """The wheel that is installed has each attribute that the program sets on its parameters."""
    assert len(set_parameters()) > 15
    assert missing_parameters() == ()


def test_the_page_names_the_recorded_releases() -> None:
    """Package, version, count and date in the documentation are those of the recorded lists."""
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    told = {name: row for name, row in rows if name in recorded_engines()}
    assert told == {
        one.engine: f"{one.package} {one.version} | {one.build} | {len(one.options)} | {one.read_on}"
        for one in map(recorded, recorded_engines())
    }

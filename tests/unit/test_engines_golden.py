"""Every shipped profile, and one of each engine with all its keys, as a launch in full."""

import os
from pathlib import Path

import pytest

from appliance.adapters.profile_files.loading import load_profile
from appliance.planning import engines

SHIPPED = Path(__file__).parents[2] / "profiles"
MORE = Path(__file__).parent / "golden" / "engines" / "profiles"
GOLDEN = Path(__file__).parent / "golden" / "engines"
FILES = sorted([*SHIPPED.glob("*.toml"), *MORE.glob("*.toml")])
REWRITE = "WRITE_GOLDEN"
"""Set in the environment, this writes the golden files anew; read the diff before a commit."""


def as_text(launch: engines.Launch) -> str:
    """One argument a line, then the environment, then the health path."""
    variables = [f"{name}={value}" for name, value in launch.environment.items()]
    return "\n".join([*launch.argv, "", *variables, "", launch.health_path, ""])


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_a_profile_renders_to_its_golden_launch(file: Path) -> None:
    """Arguments, environment and health path of a shipped profile are what was reviewed."""
    text = as_text(engines.launch(load_profile(file), engines.LaunchContext()))
    golden = GOLDEN / f"{file.stem}.txt"
    if REWRITE in os.environ:
        golden.write_text(text)
    assert text == golden.read_text()


def test_every_golden_launch_belongs_to_a_profile() -> None:
    """No golden file outlives its profile."""
    assert {g.stem for g in GOLDEN.glob("*.txt")} == {f.stem for f in FILES}


def test_the_shipped_profiles_cover_the_known_stacks() -> None:
    """The demo's two profiles and the six known stacks are shipped."""
    assert {f.stem for f in SHIPPED.glob("*.toml")} == {
        "smol",
        "smol-long",
        "genesis",
        "aeon",
        "gemma-cpu",
        "gemma-1gpu",
        "gemma-2gpu",
        "coder4",
    }

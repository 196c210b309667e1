"""Paths of an installation."""

import pytest

from appliance.model.paths import build_of


@pytest.mark.parametrize(
    ("module", "build"),
    [
        (
            "/opt/appliance/releases/0.1.0-1a2b3c4d/lib/python3.11/site-packages/appliance/__init__.py",
            "1a2b3c4d",
        ),
        ("/srv/releases/appliance/releases/0.2.0-ffff0000/lib/appliance/__init__.py", "ffff0000"),
        ("/home/ana/appliance/appliance/__init__.py", None),
    ],
)
def test_a_release_tells_its_build(module: str, build: str | None) -> None:
    """The name that scripts/install.sh gives a release has the build; a checkout has none."""
    assert build_of(module) == build

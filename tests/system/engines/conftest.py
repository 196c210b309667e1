"""A booted box in which a real vLLM may be served, and the figures that were measured on it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.engines.installation import Installation, vllm
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box, Image
from tests.system.rig.appliance import CHECKOUT

HERE = Path(__file__).parent
FIGURES = os.environ.get("APPLIANCE_FIGURES")
"""File for the figures; unset: the figures are only asserted on."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real engines run when they are asked for, and take minutes."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.engines)
            item.add_marker(pytest.mark.timeout(4800))


@pytest.fixture(scope="session")
def installation() -> Installation:
    """The engine, or the reason why there is none."""
    found = vllm()
    if not found.is_complete:
        pytest.skip(f"no {found.directory}: make engines-vllm; that vLLM serves here is not shown")
    return found


@pytest.fixture(scope="session")
def figures() -> Iterator[dict[str, Any]]:
    """Return the measured figures, by name."""
    measured: dict[str, Any] = {}
    yield measured
    if FIGURES:
        Path(FIGURES).write_text(json.dumps(measured), encoding="utf-8")


@pytest.fixture(scope="module")
def fleet(image: Image, installation: Installation) -> Iterator[Fleet]:
    """A box with vLLM bound read-only, and the profiles of this folder beside the shipped smol."""
    seen = {str(installation.directory): installation.directory}
    with Box(image, disk="/var/lib/appliance", read_only=seen) as box:
        fleet = Fleet(box)
        for file in HERE.glob("profiles/*.toml"):
            text = file.read_text(encoding="utf-8")
            if 'engine = "vllm"' in text:
                text = text.replace("/opt/vllm", str(installation.directory))
                box.write(f"{PROFILES}/{file.name}", text)
        box.write(f"{PROFILES}/smol.toml", (CHECKOUT / "profiles/smol.toml").read_text("utf-8"))
        fleet.apply()
        yield fleet

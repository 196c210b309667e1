"""A short run of `make chaos`, and that its watch sees what it is there for."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.__main__ import run
from tests.chaos.observer import Observer
from tests.chaos.sabotage import sabotage
from tests.chaos.scenario import compiled, furnish, new_box
from tests.system.rig import Box, Image

SEED = 3
FAULTS = 12


@pytest.fixture(scope="module")
def clock() -> Path:
    """The library that sets a box's clock."""
    return compiled("clock.c", "-shared", "-fPIC")


@pytest.fixture
def unlocked(image: Image, clock: Path) -> Iterator[Box]:
    """A box of which gate and leases were taken."""
    with new_box(image, f"chaos-{os.getpid()}-open") as box:
        furnish(box, clock)
        sabotage(box, "lease")
        sabotage(box, "gate")
        yield box


def test_a_dozen_faults_never_make_two_owners(image: Image) -> None:
    """One owner, no allocation that fails, nothing lost, and the box comes to rest."""
    report = run(image, seed=SEED, faults=FAULTS)
    assert report.verdict == {
        "seed": SEED,
        "faults": FAULTS,
        "owners_max": 1,
        "oom": 0,
        "lost_operations": 0,
        "unconverged": 0,
    }


def test_the_watch_sees_two_owners(unlocked: Box) -> None:
    """Without gate and leases two models own one GPU together, and the samples say so."""
    with Observer(unlocked, compiled("watch.c")) as observer:
        observer.booted()
        for name in ("medium", "left"):
            unlocked.run(f"systemctl start --job-mode=ignore-dependencies appliance-backend-{name}")
        assert observer.owners_max == 2
        assert "left, medium own together" in observer.together[0]

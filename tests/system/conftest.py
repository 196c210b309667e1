"""Fixtures that the system tests share: the rig, an installed image, boxes on it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import pretend
from tests.pretend import Gpus
from tests.system.fleet import Fleet
from tests.system.rig import Box, Image, missing, shared_directory, sweep
from tests.system.rig.appliance import fetch_wheels, install, sources

HERE = Path(__file__).parent
REQUIRED = os.environ.get("APPLIANCE_TESTS_REQUIRE_SYSTEM") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test here as a system test, which may wait for the image to be built."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.system)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def rig() -> type[Box]:
    """Return the maker of boxes. Where there can be none, skip the test, or fail if required."""
    if reason := missing():
        unproved = f"{reason}; nothing about a real systemd is shown by this run"
        pytest.fail(unproved) if REQUIRED else pytest.skip(unproved)
    sweep()
    return Box


@pytest.fixture(scope="session")
def archives(rig: type[Box]) -> Iterator[Path | None]:  # noqa: ARG001 - only where there are boxes
    """Directory of all workers of this run, which build each image once; None: there are no workers."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        yield None
        return
    with shared_directory(run) as directory:
        yield directory


def _built(box: Box, prepare: Callable[[Box], None], archive: Path | None) -> Iterator[Image]:
    built = Image.once(box, prepare, archive) if archive else Image.build(box, prepare)
    yield built
    built.close()


@pytest.fixture(scope="session")
def image(rig: type[Box], archives: Path | None) -> Iterator[Image]:
    """A machine on which scripts/install.sh has installed the appliance, without network."""
    box = rig(read_only=sources(fetch_wheels()))
    yield from _built(box, install, archives and archives / "installed.tar")


@pytest.fixture
def box(image: Image) -> Iterator[Box]:
    """A booted box with the appliance installed and no profile; its state is on a crash disk."""
    with Box(image, disk="/var/lib/appliance") as booted:
        yield booted


def _with_gpus(box: Box) -> None:
    pretend.install(box)


@pytest.fixture(scope="session")
def gpu_image(rig: type[Box], image: Image, archives: Path | None) -> Iterator[Image]:
    """A machine with the appliance and a pretend driver of two GPUs of 16 GiB."""
    yield from _built(rig(image), _with_gpus, archives and archives / "gpus.tar")


@pytest.fixture
def gpu_box(gpu_image: Image) -> Iterator[Box]:
    """A booted box with two empty pretend GPUs; the appliance's state is on a crash disk."""
    with Box(gpu_image, disk="/var/lib/appliance") as booted:
        yield booted


@pytest.fixture
def gpus(gpu_box: Box) -> Gpus:
    """The GPUs of that box."""
    return pretend.gpus_of(gpu_box)


@pytest.fixture
def fleet(box: Box) -> Fleet:
    """A box with the profiles a and b, a serving."""
    fleet = Fleet(box)
    fleet.pair()
    fleet.switch("a")
    return fleet


@pytest.fixture(scope="module")
def module_fleet(image: Image) -> Iterator[Fleet]:
    """A box of one file, with the profiles a and b."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        fleet.pair()
        fleet.keep()
        yield fleet


@pytest.fixture
def shared_fleet(module_fleet: Fleet) -> Fleet:
    """The box of the file with the profiles, settings and units that it began with, a serving.

    A boot, two profiles and a switch take some 4 s of CPU time: for files whose tests change
    nothing else that the others see.
    """
    module_fleet.restore("a")
    return module_fleet


@pytest.fixture(scope="module")
def module_gpu_fleet(gpu_image: Image) -> Iterator[Fleet]:
    """A box of one file, with two profiles that each fill most of both pretend GPUs."""
    with Box(gpu_image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        fleet.gpu_pair()
        fleet.keep()
        yield fleet


@pytest.fixture
def shared_gpus(module_gpu_fleet: Fleet) -> Gpus:
    """The GPUs of the box of the file, without faults and with nothing left by the dead."""
    gpus = pretend.gpus_of(module_gpu_fleet.box)
    gpus.renew()
    return gpus


@pytest.fixture
def shared_gpu_fleet(module_gpu_fleet: Fleet, shared_gpus: Gpus) -> Iterator[Fleet]:
    """The box of the file as it began, a serving on its GPUs; no allocation may fail."""
    module_gpu_fleet.restore("a")
    yield module_gpu_fleet
    assert shared_gpus.out_of_memory() == []

"""Answers of the sampler on recorded machines: AMD's cards, and memory that is a NUMA node.

The recordings are what ``tail -n +1 FILE…`` prints of the kernel's files, below ``recorded/amd``.
"""

import ctypes.util
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.system.gpus import amd, sampler
from appliance.system.gpus.sampler_client import Device
from appliance.system.gpus.states import (
    DEVICE,
    EXACT,
    NO_DRIVER,
    NO_LIBRARY,
    NUMA,
    OPAQUE,
    UNIFIED,
    DriverError,
)
from appliance.system.kernel.text_files import meminfo, node_meminfo
from tests.pretend.building import build
from tests.pretend.gpus import GIB, Gpus

RECORDED = Path(__file__).with_name("recorded") / "amd"
MIB = 1 << 20

no_real_driver = pytest.mark.skipif(
    ctypes.util.find_library("nvidia-ml") is not None,
    reason="a real driver library is installed: what happens without one stays unproved",
)


def unpacked(recording: str, root: Path) -> Path:
    """A recorded machine's files below `root`."""
    for part in (RECORDED / f"{recording}.txt").read_text("ascii").split("==> ")[1:]:
        name, _, content = part.partition(" <==\n")
        write(root / name, content.rstrip("\n") + "\n")
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "ascii")


def devices(recording: str, root: Path, *, with_processes: bool = False) -> list[Device]:
    unpacked(recording, root)
    return read(root, with_processes=with_processes)


def read(root: Path, *, with_processes: bool = False) -> list[Device]:
    driver = amd.Driver(amd.cards(str(root)), str(root))
    return [Device(d) for d in driver.read(with_processes)]


def asked(root: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the program's answer on a machine whose files are below `root`."""
    argv = [sys.executable, "-I", str(sampler.__file__), str(root)]
    done = subprocess.run(
        argv,
        input="processes\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, **environment},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_cards_are_in_the_order_of_the_bus(tmp_path: Path) -> None:
    """Each card has its own identity, whatever the kernel numbered first."""
    first, second, graphics = devices("workstation", tmp_path)
    assert [d.index for d in (first, second, graphics)] == [0, 1, 2]
    assert (first.uuid, first.name) == ("GPU-b2c3f1a09d8e7c65", "Radeon RX 7900 XTX")
    assert (second.uuid, second.name) == ("GPU-5a4b3c2d1e0f9a8b", "AMD GPU 0x744c")
    assert graphics.uuid == "PCI-0000:0e:00.0"


@pytest.mark.parametrize(
    ("recording", "index", "quality", "total", "free", "problem"),
    [
        ("workstation", 0, EXACT, 25753026560, 25753026560 - 9 * GIB, ""),
        ("workstation", 1, EXACT, 25753026560, 25753026560 - 30 * MIB, ""),
        # A processor's own graphics: what was set aside, and the host's memory up to the GTT.
        ("workstation", 2, UNIFIED, 32 * GIB + 512 * MIB, 32 * GIB + 332 * MIB - 64 * MIB, ""),
        ("apu", 0, UNIFIED, 17 * GIB, 15 * GIB + 824 * MIB, ""),
        # Nearly all of the memory was set aside by hand: that is what counts.
        ("big-carve-out", 0, EXACT, 96 * GIB, 94 * GIB, ""),
        ("partitioned", 0, OPAQUE, 206141652992, 206141652992 - 300 * MIB, "partitions (CPX)"),
        ("partitioned", 1, EXACT, 206141652992, 206141652992 - 300 * MIB, ""),
    ],
)
def test_what_a_card_has(
    tmp_path: Path, *, recording: str, index: int, quality: str, total: int, free: int, problem: str
) -> None:
    """Sizes come with what they are worth."""
    device = devices(recording, tmp_path)[index]
    assert (device.quality, device.total_bytes, device.free_bytes) == (quality, total, free)
    assert device.used_bytes == total - free
    assert problem in device.problem
    assert (device.processes, device.error_kind) == (None, "")


def test_a_processors_graphics_have_no_more_than_the_host(tmp_path: Path) -> None:
    """Of the memory that the host shares only what the host has left is free."""
    unpacked("apu", tmp_path)
    write(tmp_path / "proc/meminfo", f"MemTotal: {32 << 20} kB\nMemAvailable: {2 << 20} kB\n")
    assert read(tmp_path)[0].free_bytes == 2 * GIB + GIB - 200 * MIB


def test_who_has_memory_on_a_card(tmp_path: Path) -> None:
    """Copies of a descriptor count once, and whoever only draws is told from who computes."""
    first, second, graphics = devices("workstation", tmp_path, with_processes=True)
    found = {p.pid: (p.held_bytes, p.compute) for p in first.processes or ()}
    assert found == {
        2210: (256 * MIB, False),
        3300: (512 * MIB, True),
        4121: (8 * GIB + 4 * MIB, True),
    }
    # It computes on the first card, and has opened the second as ROCm does.
    assert [(p.pid, p.held_bytes, p.compute) for p in second.processes or ()] == [(4121, 0, True)]
    assert graphics.processes == []


def test_descriptors_of_other_things_are_not_read(tmp_path: Path) -> None:
    """Where the descriptors can be seen, only those of a GPU are looked into."""
    unpacked("apu", tmp_path)
    folder = tmp_path / "proc/900/fd"
    folder.mkdir()
    (folder / "7").symlink_to("/dev/dri/renderD128")
    assert [p.pid for p in read(tmp_path, with_processes=True)[0].processes or ()] == [900]
    (folder / "7").unlink()
    (folder / "7").symlink_to("/dev/null")
    assert read(tmp_path, with_processes=True)[0].processes == []


def test_a_card_without_figures_is_told(tmp_path: Path) -> None:
    """A card whose memory cannot be read does not work, and hides no other."""
    unpacked("workstation", tmp_path)
    (tmp_path / "sys/class/drm/card1/device/mem_info_vram_used").unlink()
    first, second, _ = read(tmp_path)
    assert (first.error_kind, first.quality) == (DEVICE, OPAQUE)
    assert second.quality == EXACT


def test_a_card_tells_its_clocks_power_and_link(tmp_path: Path) -> None:
    """Sensors of the kernel are read in the units of the evidence; what a card lacks is left out."""
    card = unpacked("workstation", tmp_path) / "sys/class/drm/card1/device"
    for name, text in {
        "hwmon/hwmon3/freq1_input": "2371000000",
        "hwmon/hwmon3/freq2_input": "1249000000",
        "hwmon/hwmon3/power1_average": "287400000",
        "hwmon/hwmon3/temp1_input": "64000",
        "current_link_width": "16",
        "current_link_speed": "16.0 GT/s PCIe",
    }.items():
        write(card / name, f"{text}\n")
    write(tmp_path / "sys/module/amdgpu/version", "6.8.5\n")
    driver = amd.Driver(amd.cards(str(tmp_path)), str(tmp_path))
    first, second, graphics = driver.evidence()
    assert first["evidence"] == {
        "sm_clock_mhz": 2371,
        "memory_clock_mhz": 1249,
        "power_w": 287.4,
        "temperature_c": 64,
        "pcie_width": 16,
        "pcie_generation": 4,
    }
    assert (second["evidence"], graphics["evidence"]) == ({}, {})
    assert first["processes"]
    assert driver.version() == "6.8.5"


def test_a_driver_that_is_unloaded_is_an_error(tmp_path: Path) -> None:
    """Cards that were there and are gone are not read as empty."""
    unpacked("apu", tmp_path)
    found = amd.cards(str(tmp_path))
    shutil.rmtree(tmp_path / "sys")
    with pytest.raises(DriverError, match="amdgpu driver is not loaded") as caught:
        amd.Driver(found, str(tmp_path)).read(False)  # noqa: FBT003
    assert caught.value.kind == NO_DRIVER
    assert amd.cards(str(tmp_path)) == []


@no_real_driver
def test_cards_are_found_where_nvidia_has_no_library(tmp_path: Path) -> None:
    """The program reads AMD's cards by itself when there is nothing of NVIDIA's."""
    answer = asked(unpacked("workstation", tmp_path), {"LD_LIBRARY_PATH": ""})
    assert answer["error"] is None
    assert [d["index"] for d in answer["devices"]] == [0, 1, 2]


@pytest.fixture
def gpus(tmp_path: Path) -> Gpus:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the pretend driver; the NVML readings stay unproved")
    gpus = Gpus(tmp_path / "state")
    gpus.replace({"count": 1, "*.total": 96 * GIB, "*.reserved": GIB})
    return gpus


@pytest.mark.parametrize(("device_class", "kind"), [("0x030000", NO_DRIVER), ("0x020000", None)])
def test_a_driver_that_is_being_loaded_is_waited_for(
    tmp_path: Path, gpus: Gpus, device_class: str, kind: str | None
) -> None:
    """With an NVIDIA GPU in the machine the processor's graphics never stand in for it."""
    root = unpacked("apu", tmp_path / "root")
    slot = root / "sys/bus/pci/devices/0000:01:00.0"
    write(slot / "vendor", "0x10de\n")
    write(slot / "class", f"{device_class}\n")
    gpus.change({"init": 9})
    answer = asked(root, gpus.environment(build()))
    assert (answer["error"] and answer["error"]["kind"]) == kind


def numa(root: Path, *, free: int, files: int, shared: int = 0, cpus: str = "") -> None:
    node = root / "sys/devices/system/node/node1"
    write(node / "cpulist", cpus + "\n")
    sizes = {"MemTotal": 95 * GIB, "MemFree": free, "FilePages": files, "Shmem": shared}
    text = "".join(f"Node 1 {name}: {size >> 10:>12} kB\n" for name, size in sizes.items())
    write(node / "meminfo", text + "Node 1 HugePages_Total:     0\n")


@pytest.mark.parametrize(
    ("node", "quality", "free"),
    [
        # Pages that the last process left behind are given back on demand, those of tmpfs not.
        ({"free": 60 * GIB, "files": 30 * GIB}, NUMA, 90 * GIB),
        ({"free": 60 * GIB, "files": 30 * GIB, "shared": 10 * GIB}, NUMA, 80 * GIB),
        # The driver sees more free than the kernel does.
        ({"free": 1 * GIB, "files": 0}, NUMA, 65 * GIB),
        ({"free": 99 * GIB, "files": 0}, NUMA, 96 * GIB),
        # A node with processors is the host's.
        ({"free": 90 * GIB, "files": 0, "cpus": "0-71"}, EXACT, 65 * GIB),
    ],
)
def test_memory_that_is_a_numa_node(
    tmp_path: Path, gpus: Gpus, node: dict[str, Any], quality: str, free: int
) -> None:
    """Free is what the driver or the kernel could give, whichever is more."""
    numa(tmp_path, **node)
    gpus.change({"0.numa": 1, "0.free": 65 * GIB})
    device = Device(asked(tmp_path, gpus.environment(build()))["devices"][0])
    assert (device.quality, device.free_bytes) == (quality, free)
    assert device.used_bytes == max(0, 96 * GIB - free - GIB) or quality == EXACT


def test_a_node_that_is_not_there_is_none(tmp_path: Path) -> None:
    """Without the kernel's files there is no figure."""
    assert node_meminfo(7, str(tmp_path)) is None
    assert meminfo(str(tmp_path)) == (0, 0)


@no_real_driver
def test_a_claim_where_there_is_no_gpu_costs_little(tmp_path: Path) -> None:
    """The program takes less than 0.3 s of CPU time to say that there is no driver."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert asked(tmp_path, {"LD_LIBRARY_PATH": ""})["error"]["kind"] == NO_LIBRARY
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent_s < 0.3

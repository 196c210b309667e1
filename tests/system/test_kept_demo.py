"""Demonstration that is kept: the commands that it prints, a reboot within, a second one beside it, and its end."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.system.rig import Box
from tests.system.rig.appliance import CHECKOUT

DEMO = str(CHECKOUT / "scripts/demo.sh")
WITHIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Demonstration that has ended and left its machine running."""

    folder: Path
    enter: str
    """Command as it was printed; likewise the next."""
    end: str
    report: dict[str, object]

    def demo(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run demo.sh in the same folder."""
        return demo(self.folder, *options)

    def typed(self, *lines: str) -> "subprocess.CompletedProcess[str]":
        """Enter the machine as printed and type lines there; their output is what the last one writes."""
        return subprocess.run(
            ["/bin/bash", "-c", self.enter],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline_s = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < deadline_s
            time.sleep(0.5)  # real time: a machine boots or ends


def demo(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [DEMO, *options],
        env={**os.environ, "APPLIANCE_RIG_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


@pytest.fixture
def kept(rig: type[Box], tmp_path: Path) -> Iterator[Kept]:  # noqa: ARG001 - only where there are boxes
    """One such demonstration; ended afterwards, whatever the test did."""
    folder = tmp_path / "demo"
    done = demo(folder, "--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    enter, end = (
        re.search(rf"^  {what}: +(.+?)(?:   \(|$)", done.stdout, re.MULTILINE)
        for what in ("enter it", "end it")
    )
    assert enter is not None
    assert end is not None
    report = json.loads(done.stdout.splitlines()[-1])
    yield Kept(folder=folder, enter=enter[1], end=end[1], report=report)
    if folder.exists():
        subprocess.run(["/bin/bash", "-c", end[1]], check=False, capture_output=True)


@pytest.mark.timeout(900)
def test_a_kept_demo_is_entered_rebooted_and_ended(kept: Kept) -> None:
    """Both printed commands work as they stand, also after a reboot; nothing is left in the end."""
    assert kept.report
    status = kept.typed("appliance status --json")
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["verdict"]["state"] == "serving"
    again = kept.demo()
    assert again.returncode == 75
    assert "Traceback" not in again.stderr
    assert re.search(r"belongs to process \d+: kill \d+ ends it", again.stderr)
    before = kept.typed("cat /proc/sys/kernel/random/boot_id").stdout
    # Somebody who stays in the machine does not keep it from ending.
    left = kept.typed("systemctl reboot; sleep 1000")
    assert left.returncode != 0

    def has_rebooted() -> bool:
        told = kept.typed("cat /proc/sys/kernel/random/boot_id")
        return told.returncode == 0 and told.stdout not in {"", before}

    kept.until(has_rebooted)
    waited = kept.typed("appliance wait --for serving --timeout 60s && appliance status --json")
    assert waited.returncode == 0, waited.stderr
    ended = subprocess.run(["/bin/bash", "-c", kept.end], check=False, capture_output=True)
    assert ended.returncode == 0
    kept.until(lambda: not kept.folder.exists())
    assert kept.typed("true").returncode != 0

"""Check of the page with Debian's chromium on a booted box: scenarios, axe-core, and pictures for the docs.

The browser runs in the network of the box, where the page is at 127.0.0.1:8011. Playwright (125 MB) and
axe-core are installed in .cache on the first run. ``python -m tests.page_check``, by root, two minutes.
The last line is one JSON object.
"""

import json
import shlex
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from tests import pretend
from tests.bench.machine import prepared, report, say
from tests.programs import ROOT
from tests.system.fleet import OPERATOR, Fleet
from tests.system.phone import Phone
from tests.system.rig import Box
from tests.system.rig.appliance import install

PLAYWRIGHT: Final = "1.65.2"
AXE: Final = "4.14.1"
CHROMIUM: Final = Path("/usr/bin/chromium")
_CACHE: Final = ROOT / ".cache/check-page"
_BROWSING: Final = Path(__file__).with_name("browsing.py")
_PICTURES: Final = ROOT / "docs/pictures"
_ALERT: Final = "foreign-holder"
_ALERT_WITHIN_S: Final = 180.0
"""Time for an alert that fires after a minute, and for its delivery."""

_ORIGINS: Final = '\n[gateway]\norigins = ["http://chat.example:8700"]\n'
_PAGES: Final = (
    *("python3", "-m", "http.server", "--bind", "127.0.0.1"),
    *("-d", "/usr/share/doc/bash", "8700"),
)
"""Server of pages of other origins, whatever name the browser has for it."""

_WEEK: Final = """
import sqlite3, time
now = time.time() - 3600
week = [(166, "loading"), (165.8, "serving"), (120, "restarting"), (119, "serving"), (92, "degraded"), (84, "serving"),
        (60, "stopping"), (59.8, "stopped"), (40, "loading"), (39, "failed"), (36, "loading"), (35, "serving"),
        (14, "unknown"), (10, "serving")]
db = sqlite3.connect("/var/lib/appliance-health/states.sqlite", timeout=20)
with db:
    db.executemany("INSERT INTO changes VALUES (?, ?, 'a', ?)",
                   [(n - 100, now - hours * 3600, state) for n, (hours, state) in enumerate(week)])
"""
"""Program that plants a week of states of a in the box's record, before what was recorded there."""


def environment() -> tuple[Path, Path]:
    """Return the Python that has Playwright, and the script of axe-core; both are installed if need be."""
    python, axe = _CACHE / "venv/bin/python", _CACHE / "node_modules/axe-core/axe.min.js"
    if not python.exists():
        venv.create(_CACHE / "venv", with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", f"playwright=={PLAYWRIGHT}"], check=True
        )
    if not axe.exists():
        command = ["npm", "install", "--silent", "--no-save", "--prefix", str(_CACHE)]
        subprocess.run([*command, f"axe-core@{AXE}"], check=True)
    return python, axe


def prepare(box: Box) -> None:
    """Install the appliance and two pretend GPUs of 16 GiB."""
    install(box)
    pretend.install(box)


def browser_in(box: Box) -> Path:
    """Return a program that runs chromium in the network of a box."""
    path = _CACHE / "chromium-in-box"
    path.write_text(
        f'#!/bin/sh\nexec nsenter --net=/proc/{box.leader}/ns/net {CHROMIUM} "$@"\n', "utf-8"
    )
    path.chmod(0o755)
    return path


def furnish(fleet: Fleet, phone: Phone) -> str:
    """Apply two profiles that exclude each other and take six seconds to load; a serves. Return an operator's token."""
    fleet.people()
    phone.subscribe()
    for name, port in (("a", 9001), ("b", 9002)):
        fleet.gpu_profile(name, port, "--delay", "6", "--obey", "--pause", "0.01", gib=20.0)
    fleet.box.run(f"printf '%s' {shlex.quote(_ORIGINS)} >>/etc/appliance/appliance.toml")
    fleet.box.run("systemd-run", "-q", "--unit=pages", *_PAGES)
    fleet.apply()
    # Twice each: the page says how far a load is by how long it took before.
    for name in ("b", "a"):
        fleet.box.run("appliance", "switch", name, timeout_s=60)
    fleet.box.run("/opt/appliance/current/bin/python", "-c", _WEEK, timeout_s=30)
    fleet.box.wait_for("curl -fsS -m 5 http://127.0.0.1:8011/livez", timeout_s=30)
    fleet.foreign_holder("miner", "0:4")
    command = ("runuser", "-u", OPERATOR, "--", "appliance", "token", "add", "page")
    return fleet.box.run(*command).stdout.strip()


def first_alert(phone: Phone) -> str:
    """Wait for the alert about memory of the GPU that a stranger holds; return the message as JSON, in one line."""
    phone.until(lambda: bool(phone.entries(_ALERT)), _ALERT_WITHIN_S)
    return json.dumps(phone.entries(_ALERT)[0]["shown"])


def serve_wishes(fleet: Fleet, phone: Phone, browsing: subprocess.Popen[str]) -> dict[str, float]:
    """Do in the box what the browser's side asks for, a line each; return the figures of its last line."""
    assert browsing.stdin is not None
    assert browsing.stdout is not None
    for line in browsing.stdout:
        word = json.loads(line)
        if "figures" in word:
            figures: dict[str, float] = word["figures"]
            return figures
        if "say" in word:
            say(word["say"])
            continue
        if "alert" in word:
            browsing.stdin.write(f"{first_alert(phone)}\n")
        else:
            fleet.box.run(word["run"], timeout_s=60)
            browsing.stdin.write("done\n")
        browsing.stdin.flush()
    raise SystemExit("the browser's side ended without a result")


def main() -> int:
    """Run the check; the exit status is 1 where a scenario failed."""
    if not CHROMIUM.exists():
        sys.exit("no chromium: sudo apt install chromium")
    python, axe = environment()
    _PICTURES.mkdir(exist_ok=True)
    with prepared(prepare) as image, Box(image) as box:
        fleet = Fleet(box)
        phone = Phone(box)
        token = furnish(fleet, phone)
        command = [python, _BROWSING, browser_in(box), axe, _PICTURES]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as browsing:
            try:
                assert browsing.stdin is not None
                # Not an argument: those are for everybody to read.
                browsing.stdin.write(f"{token}\n")
                browsing.stdin.flush()
                figures = serve_wishes(fleet, phone, browsing)
            finally:
                browsing.kill()
    report(figures)
    return int(figures["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())

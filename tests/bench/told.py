"""Time until a phone is told, at the pace of a real box, and silence about an engine that is busy.

usage: python -m tests.bench.told [BUSY_MINUTES]

Two boxes at once, each with a server that speaks ntfy's publish API as its phone:

killed  the engine of a live model is killed, and its next start never serves; then one does
stuck   a switch to a model that works for ever and never serves
busy    the embedded model with long prompts and more requests than it takes at once, for ten minutes

The last line is JSON.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from appliance.model.operations import Phase
from tests.bench.machine import prepared, say
from tests.system.chat import ask
from tests.system.fleet import ENGINE, PROFILES, Fleet
from tests.system.phone import Phone
from tests.system.rig import Box, Image, RigError
from tests.system.rig.appliance import CHECKOUT, install

BUSY_MIN: Final = 10.0
GATEWAY: Final = 8010
CLIENTS: Final = 6
"""Requests at once: the embedded engine takes one, the others wait in its queue."""
PROMPT: Final = "The quick brown fox jumps over the lazy dog. " * 120
"""About 1,200 tokens of the 2,048 that a request may use."""
TOLD_WITHIN_S: Final = 60.0
PATIENCE_S: Final = 180.0
STUCK: Final = """description = "works, and never serves"
engine = "command"
port = 9003
gpus = []
[command]
argv = ["/bin/sh", "-c", "while :; do :; done", "{port}"]
health = "/health"
[deadlines]
no_progress = "60s"
"""
"""Silences short enough for the shortest deadline of a load, ten minutes."""


def main() -> None:
    """Print the figures."""
    minutes = float(sys.argv[1]) if sys.argv[1:] else BUSY_MIN
    figures: dict[str, object] = {}
    failures: list[str] = []

    def attempt(image: Image, trial: str) -> None:
        try:
            found = killed_and_stuck(image) if trial == "told" else busy(image, minutes)
            figures.update(found)
        except RigError as error:
            failures.append(trial)
            say(f"{trial}: {error}")

    with prepared(install) as image:
        trials = [threading.Thread(target=attempt, args=(image, t)) for t in ("told", "busy")]
        for trial in trials:
            trial.start()
        for trial in trials:
            trial.join()
    figures["met"] = not failures and is_met(figures)
    sys.stdout.write(json.dumps(figures) + "\n")


def is_met(figures: Mapping[str, Any]) -> bool:
    """Tell whether every wanted figure holds."""
    return bool(
        figures["told_s"] <= TOLD_WITHIN_S
        and figures["entries"] == 1
        and figures["told_in_switch"] == 0
        and figures["busy_told"] == figures["busy_restarts"] == figures["busy_failed"] == 0
        and figures["busy_requests"] > 0
    )


def killed_and_stuck(image: Image) -> Mapping[str, object]:
    """Return the times of the box on which a model dies, and later a switch hangs."""
    with Box(image) as box:
        fleet = Fleet(box)
        phone = Phone(box)
        phone.subscribe()
        fleet.profile("a", 9001)
        box.write(f"{PROFILES}/w.toml", STUCK)
        fleet.apply()
        fleet.switch("a")
        box.run("appliance mark a live")
        time.sleep(30)  # real time: looks at a box that is well
        # What systemd starts in its place never serves: a program that fails is told sooner, as a crash loop.
        box.run(f"mv {ENGINE} {ENGINE}.away; echo 'import time; time.sleep(9999)' >{ENGINE}")
        box.run(f"kill -9 {fleet.main_pid('a')}")
        told_s = phone.until(lambda: bool(phone.titles()), PATIENCE_S)
        say(f"a live model that died: told after {told_s:.1f} s: {phone.titles()}")
        box.run(f"mv {ENGINE}.away {ENGINE}; appliance restart a")
        resolved_s = phone.until(lambda: phone.titles()[-1].startswith("▲"), PATIENCE_S)
        say(f"it serves again: told after {resolved_s:.1f} s: {phone.titles()}")
        entries = len(phone.entries("-A"))
        before = len(phone.titles())
        box.run("appliance switch w --no-wait")
        deadline_s = load_deadline_s(fleet)
        stuck_s = phone.until(
            lambda: bool(phone.entries("switch-stuck")), deadline_s + TOLD_WITHIN_S
        )
        say(
            f"a switch that is stuck: told after {stuck_s:.0f} s, its deadline is {deadline_s:.0f} s"
        )
        others = [t for t in phone.titles()[before:] if "switch" not in t]
    return {
        "told_s": round(told_s, 1),
        "resolved_s": round(resolved_s, 1),
        "entries": entries,
        "stuck_deadline_s": deadline_s,
        "stuck_told_s": round(stuck_s, 1),
        "told_in_switch": len(others),
    }


def load_deadline_s(fleet: Fleet) -> float:
    """Return the deadline of the load that runs, by the status, which must come to it."""
    for _ in range(int(PATIENCE_S)):
        operation = fleet.status()["operation"]
        if operation is not None and operation["phase"] == Phase.LOAD:
            return float(operation["deadline_s"])
        time.sleep(1)  # real time: a switch on a box
    raise RigError("the switch has not come to its load")


def busy(image: Image, minutes: float) -> Mapping[str, object]:
    """Return what a phone was told, and systemd did, of an engine that had always more to do."""
    with Box(image) as box:
        fleet = Fleet(box)
        phone = Phone(box)
        phone.subscribe()
        box.write(f"{PROFILES}/smol.toml", (CHECKOUT / "profiles/smol.toml").read_text())
        fleet.apply()
        fleet.switch("smol")
        pid = fleet.main_pid("smol")
        until_s = time.monotonic() + minutes * 60
        counts = {"answered": 0, "failed": 0}
        clients = [
            threading.Thread(target=_keep_asking, args=(box, n, until_s, counts))
            for n in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        told = phone.titles()
        say(f"busy for {minutes:.0f} min: {counts}, told {told}")
        return {
            "busy_minutes": minutes,
            "busy_requests": counts["answered"],
            "busy_failed": counts["failed"],
            "busy_told": len(told),
            "busy_restarts": int(fleet.show("smol", "NRestarts"))
            + int(fleet.main_pid("smol") != pid),
        }


def _keep_asking(box: Box, number: int, until_s: float, counts: dict[str, int]) -> None:
    """Send one request after the other, each with another beginning: no prefix is cached."""
    sent = 0
    while time.monotonic() < until_s:
        sent += 1
        try:
            ask(box, GATEWAY, f"{number}.{sent} {PROMPT}", model="smol", max_tokens=200)
        except (RigError, KeyError, subprocess.TimeoutExpired):
            counts["failed"] += 1
        else:
            counts["answered"] += 1


if __name__ == "__main__":
    main()

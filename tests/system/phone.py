"""Phone of the operator in a box: a server there speaks ntfy's publish API and keeps what it receives."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.system.rig import Box, Polling, RigError

_SERVER: Final = Path(__file__).parents[1] / "fakes" / "ntfy_server.py"
_PROGRAM: Final = "/usr/local/lib/test-engine/ntfy_server.py"
_STATE: Final = "/var/tmp/ntfy.json"  # noqa: S108 - in the box
_TOPIC: Final = "http://127.0.0.1:8085/garage\n"
# At a shutdown it ends after the notifier, as a server elsewhere would.
_ORDER: Final = "-p Before=appliance-notifier.service"
Entry = Mapping[str, Any]


class Phone:
    """Server of one topic, from its start to the end of the box."""

    def __init__(self, box: Box) -> None:
        self._box = box
        box.write(_PROGRAM, _SERVER.read_text("utf-8"))
        serve = f"/usr/bin/python3 {_PROGRAM} --port 8085 --state {_STATE}"
        box.run(f"systemd-run -q --unit=ntfy {_ORDER} {serve}")
        box.wait_for_listener(8085)

    def subscribe(self) -> None:
        """Make the topic a target, named phone."""
        self._box.run("appliance target add phone", stdin=_TOPIC)

    def state(self) -> Mapping[str, Any]:
        """Return everything that the server has received."""
        found: Mapping[str, Any] = json.loads(
            self._box.run(f"cat {_STATE}", check=False).stdout or "{}"
        )
        return found

    def entries(self, *words: str) -> list[Entry]:
        """Return the entries whose sequence of messages is about all of these words."""
        found = self.state().get("entries", [])
        return [one for one in found if all(word in one["sequence_id"] for word in words)]

    def titles(self) -> Sequence[str]:
        """Return the titles of all messages that were delivered."""
        delivered = self.state().get("delivered", [])
        return [one["title"] for one in delivered if one["event"] == "message"]

    def until(self, is_so: Callable[[], bool], within_s: float) -> float:
        """Wait; return the seconds that it took. Raises `RigError` with what the phone has."""
        began, polling = time.monotonic(), Polling(within_s)
        while not is_so():
            if not polling.pause():
                shown = json.dumps(self.state(), indent=1)
                alerts = self._box.run("appliance alerts", check=False).stdout
                raise RigError(
                    f"not within {within_s} s: {alerts}\n{shown}\n{self._box.journal('-n80')}"
                )
        return time.monotonic() - began

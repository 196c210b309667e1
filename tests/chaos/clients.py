"""People with the command line: what they asked for, and what they were told."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.chaos.scenario import CLOCK_LIBRARY
from tests.system.rig import Box, Stream

FINAL: Final = frozenset({"result", "error"})
"""Events that close a conversation."""


@dataclass(slots=True, kw_only=True)
class Told:
    """One run of the command, as far as it has come."""

    words: tuple[str, ...]
    boot: int
    """Boots of the box before it: numbers of operations may repeat after a power cut."""
    began_s: float
    operation: int | None = None
    """The operation that was accepted; None: none yet."""
    end: Mapping[str, Any] | None = None
    """The event that closed the story."""
    exit: int | None = None
    errors: str = ""
    cut: bool = False
    """The box went down under it."""

    def __str__(self) -> str:
        end = self.end or {}
        said = end.get("message") or self.errors.strip()
        outcome = end.get("outcome") or ("cut" if self.cut else f"exit {self.exit}")
        return f"{' '.join(self.words)} (operation {self.operation}): {outcome}: {said}"


@dataclass(slots=True)
class Clients:
    """Clients that ever used the command in one box."""

    box: Box
    told: list[Told] = field(default_factory=list)
    _open: list[tuple[Told, Stream, threading.Thread]] = field(default_factory=list)

    def ask(self, boot: int, *words: str) -> Told:
        """Run `appliance WORDS` and go on."""
        told = Told(words=words, boot=boot, began_s=time.monotonic())
        env = {"LD_PRELOAD": CLOCK_LIBRARY}
        stream = self.box.stream("appliance", *words, "--json", env=env)
        reader = threading.Thread(target=_listen, args=(told, stream), daemon=True)
        reader.start()
        self.told.append(told)
        self._open.append((told, stream, reader))
        return told

    def waiting(self) -> list[Told]:
        """Return the clients that have not ended yet."""
        self._open = [entry for entry in self._open if entry[2].is_alive()]
        return [told for told, _, _ in self._open]

    def cut(self) -> None:
        """The box has gone down: whoever was talking to it is not told an end."""
        for told, stream, reader in self._open:
            told.cut = told.end is None
            stream.process.kill()
            reader.join(10)
        self._open.clear()

    def hang_up(self) -> Sequence[Told]:
        """End those who still wait; returns them."""
        late = self.waiting()
        for _, stream, reader in self._open:
            stream.process.kill()
            reader.join(10)
        self._open.clear()
        return late


def _listen(told: Told, stream: Stream) -> None:
    for line in stream.lines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        if event.get("event") == "accepted":
            told.operation = event["operation"]
        elif event.get("event") in FINAL:
            told.end = event
    told.exit = stream.process.wait()
    told.errors = stream.errors()
    stream.close()

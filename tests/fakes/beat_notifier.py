"""Notifier with targets that keep scheduled messages by sequence id, on a clock of the test."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.model.alerts import Message, SendOutcome, SendResult
from appliance.model.errors import UnreachableError

SENT = SendResult(outcome=SendOutcome.SENT)


@dataclass
class FakeBeatNotifier:
    """The protocol `BeatNotifier`."""

    now: Callable[[], float]
    """Wall clock of the targets, which goes on when the box is dead."""
    pings: list[float] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    answers: dict[str, SendOutcome] = field(default_factory=dict)
    """Outcome other than sent by verb: ``ping``, ``schedule``, ``send``, ``cancel``."""
    is_away: bool = False
    delay_s: float = 0.0
    """Time by which each answer is late; the request is done before."""
    delivered: list[tuple[float, str, Message]] = field(default_factory=list)
    """Messages on the phone, each with its time and target."""
    _kept: dict[tuple[str, str], tuple[float, Message]] = field(default_factory=dict)

    async def send(self, target: str, message: Message) -> SendResult:
        return await self._answer("send", lambda: self._sent(target, message))

    async def schedule(self, target: str, message: Message, delay_s: float) -> SendResult:
        def keep() -> None:
            self._kept[target, message.sequence_id] = (self.now() + delay_s, message)

        return await self._answer("schedule", keep)

    async def cancel(self, target: str, sequence_id: str) -> SendResult:
        return await self._answer("cancel", lambda: self._kept.pop((target, sequence_id), None))

    async def ping(self) -> SendResult:
        return await self._answer("ping", lambda: self.pings.append(self.now()))

    def phone(self) -> list[str]:
        """Return the titles that a phone has shown so far, those that have come due among them."""
        self._deliver()
        return [message.title for _, _, message in sorted(self.delivered, key=lambda d: d[0])]

    def kept_until(self) -> dict[str, float]:
        """Return the time of delivery by target."""
        self._deliver()
        return {target: due_s for (target, _), (due_s, _) in self._kept.items()}

    def _sent(self, target: str, message: Message) -> None:
        self._kept.pop((target, message.sequence_id), None)
        self.delivered.append((self.now(), target, message))

    async def _answer(self, verb: str, do: Callable[[], object]) -> SendResult:
        self._deliver()
        self.asked.append(verb)
        if self.is_away:
            raise UnreachableError("the notifier does not answer")
        if (outcome := self.answers.get(verb)) is not None:
            return SendResult(outcome=outcome)
        do()
        await asyncio.sleep(self.delay_s)
        return SENT

    def _deliver(self) -> None:
        for key, (due_s, message) in list(self._kept.items()):
            if due_s <= self.now():
                del self._kept[key]
                self.delivered.append((due_s, key[0], message))

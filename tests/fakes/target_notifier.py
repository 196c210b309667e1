"""Notifier whose targets fail as they are told, on virtual time."""

import asyncio
from collections.abc import Callable, Sequence

from appliance.alerts.outbox_plan import Delivery
from appliance.model.alerts import Message, SendOutcome, SendResult, Severity

SENT = SendResult(outcome=SendOutcome.SENT)
REFUSED = SendResult(outcome=SendOutcome.REFUSED, text="404")


def retry(after_s: float | None = None) -> SendResult:
    return SendResult(outcome=SendOutcome.RETRY, text="no route", retry_after_s=after_s)


class TargetNotifier:
    """Notifier that records what its targets took, with the time."""

    def __init__(self) -> None:
        self.answer: Callable[[str, Message], SendResult] = lambda _target, _message: SENT
        self.takes_s = 0.0
        """Time that each message takes."""
        self.takes_s_of: dict[str, float] = {}
        """The same for some targets."""
        self.took: list[tuple[float, str, str]] = []
        """Time, target and title of each message that was taken."""
        self.tries: list[tuple[float, str]] = []
        self.in_flight: dict[str, int] = {}

    async def send(self, target: str, message: Message) -> SendResult:
        assert not self.in_flight.get(target), "two messages at a time for one target"
        self.in_flight[target] = 1
        now_s = asyncio.get_running_loop().time()
        self.tries.append((now_s, target))
        try:
            await asyncio.sleep(self.takes_s_of.get(target, self.takes_s))
            answer = self.answer(target, message)
        finally:
            self.in_flight[target] = 0
        if answer.outcome is SendOutcome.SENT:
            self.took.append((asyncio.get_running_loop().time(), target, message.title))
        return answer

    def titles(self, target: str = "phone") -> Sequence[str]:
        return [title for _, to, title in self.took if to == target]


async def plain_message(delivery: Delivery) -> Message:
    """A message whose title has the form and the transitions: ``single Agenesis1 fired``."""
    told = ", ".join(f"{one.alert} {one.kind}" for one in delivery.transitions)
    return Message(title=f"{delivery.form} {told}", body="", severity=Severity.WARNING)

"""Box that operators act on, in memory: what is asked for is kept, and answered as the daemons do."""

from dataclasses import dataclass, field
from typing import Final

from appliance.model.errors import ApplianceError, PermissionDeniedError
from appliance.model.operators import TokenOperator
from appliance.model.record import Record
from appliance.web.actions import Begun
from appliance.wire.control_events import AcceptedEvent
from appliance.wire.conversation import ActingRequest, ResultEvent

TOKEN: Final = "apt_00000001_anas"  # noqa: S105 - of no box


@dataclass(slots=True)
class FakeBoxActions:
    """Actions for the operator ana, who has one token; keeps who has asked for what."""

    operators: dict[str, str] = field(default_factory=lambda: {TOKEN: "ana"})
    """Users by their tokens, each with the name `phone`."""
    asked: list[tuple[str, Record]] = field(default_factory=list)
    """Token and request of everything that was carried out."""
    keys: list[str] = field(default_factory=list)
    answer: Begun = field(default_factory=lambda: AcceptedEvent(18, "switch", ("genesis",)))
    result: ResultEvent = field(default_factory=lambda: ResultEvent(0, "done", "it is done", {}))
    refusal: ApplianceError | None = None
    """Error with which every request is refused; None: each is carried out."""
    checking: ApplianceError | None = None
    """Error of each check of a token; None: tokens are checked."""

    @property
    def requests(self) -> list[Record]:
        """Return what was carried out."""
        return [request for _, request in self.asked]

    async def operator_of(self, token: str) -> TokenOperator:
        """Return the operator of a known token."""
        if self.checking is not None:
            raise self.checking
        if token not in self.operators:
            raise PermissionDeniedError("the token is not known, or was removed: appliance token")
        return TokenOperator(uid=1000, user=self.operators[token], token="phone")  # noqa: S106

    async def operate(self, acting: ActingRequest) -> Begun:
        """Keep a request to the supervisor."""
        self._take(acting)
        return self.answer

    async def ask_agent(self, acting: ActingRequest) -> ResultEvent:
        """Keep a request to the health agent."""
        self._take(acting)
        return self.result

    async def begin_probe(self, token: str, name: str) -> None:
        """Keep the name of a probe."""
        self._take(ActingRequest(token, ProbeBegun(name)))

    def _take(self, acting: ActingRequest) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append((acting.token, acting.request))
        self.keys.append(acting.key)


class ProbeBegun(Record):
    """Probe that was asked for."""

    name: str

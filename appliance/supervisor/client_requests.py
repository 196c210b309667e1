"""Requests of clients, as the gateway lists them: shown to who looks, and cancelled for operators."""

import logging
from collections.abc import Mapping
from typing import Final

from appliance.model.errors import UnreachableError
from appliance.model.journal_events import JournalEvent, JournalField, event_fields
from appliance.model.operations import Outcome
from appliance.model.wording import short
from appliance.supervisor.access_policy import Requester
from appliance.system.ports import Gateway
from appliance.wire.control import Exit
from appliance.wire.conversation import ResultEvent
from appliance.wire.json_values import Json, number_in, objects_in, text_in

_log = logging.getLogger(__name__)

_AWAY: Final = "the gateway does not answer: systemctl status appliance-gateway"


class ClientRequests:
    """Requests in flight and held.

    Args:
        gateway: Has them.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def document(self) -> Mapping[str, object]:
        """Return the list for a result. Raises `UnreachableError`."""
        found = await self._gateway.requests()
        if found is None:
            raise UnreachableError(_AWAY)
        return {"requests": objects_in(found, "requests"), "left_off": found.get("left_off", 0)}

    async def cancel(self, request: str, by: Requester) -> ResultEvent:
        """End one request with an error for its client. Raises `UnreachableError`."""
        found = await self._gateway.cut(request)
        if found is None:
            raise UnreachableError(_AWAY)
        rows = objects_in(found, "requests")
        if not rows:
            text = f"request {short(request)} is over"
            return ResultEvent(Exit.FAILED, "", text, {"cancelled": False})
        _report(rows[0], by)
        text = f"request {short(request)} to {text_in(rows[0], 'profile')} is cancelled"
        return ResultEvent(Exit.OK, Outcome.DONE, text, {"cancelled": True})


def _report(row: Json, by: Requester) -> None:
    profile = text_in(row, "profile")
    fields = event_fields(
        JournalEvent.REQUEST_CANCELLED,
        profiles=(profile,),
        others=((JournalField.REQUESTER, by),),
    )
    _log.info(
        "request %s to %s (key %s, %.0f s old) is cancelled by %s",
        text_in(row, "id"),
        profile,
        text_in(row, "key") or "none",
        number_in(row, "age_s") or 0.0,
        by,
        extra=fields,
    )

"""Process of the checker: answers on check.sock, and leaves when nobody asks."""

from collections.abc import AsyncGenerator

from appliance.checker.url_check import UrlChecker
from appliance.model.names import CHECK_SOCKET_UNIT
from appliance.model.service_lines import CheckTally
from appliance.system.name_lookup import NameLookup
from appliance.system.systemd.activation import serve_activated
from appliance.system.systemd.daemon import Readiness
from appliance.wire.conversation import ResultEvent
from appliance.wire.helpers import CHECK, CheckEvent, CheckRequest
from appliance.wire.server import Peer

_checker = UrlChecker(NameLookup())
_tally = CheckTally()
_readiness = Readiness()


async def answer(request: CheckRequest, _: Peer) -> AsyncGenerator[CheckEvent, None]:
    """Yield the outcome of a check. Raises `BadRequestError`."""
    result = await _checker.check(request.url, request.timeout_s)
    _tally.count(request.url, is_up=result.up)
    _readiness.tell(_tally.line())
    yield ResultEvent(details=result.fields())


def main() -> int:
    """Run the checker; returns its exit status."""
    return serve_activated(CHECK_SOCKET_UNIT, CHECK, answer)

"""Process of the auditor: answers on audit.sock, and leaves when nobody asks."""

from collections.abc import AsyncGenerator

from appliance.auditor.listener_audit import audit_listeners
from appliance.model.names import AUDIT_SOCKET_UNIT
from appliance.system.systemd.activation import serve_activated
from appliance.wire.conversation import ResultEvent
from appliance.wire.helpers import AUDIT, AuditEvent, AuditRequest, encode_listeners
from appliance.wire.server import Peer


async def answer(request: AuditRequest, _: Peer) -> AsyncGenerator[AuditEvent, None]:
    """Yield the listening sockets. Raises `ApplianceError`."""
    report = audit_listeners(request.pids)
    yield ResultEvent(details=encode_listeners(report.listeners, truncated=report.truncated))


def main() -> int:
    """Run the auditor; returns its exit status."""
    return serve_activated(AUDIT_SOCKET_UNIT, AUDIT, answer)

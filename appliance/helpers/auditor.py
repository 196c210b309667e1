"""Auditor: finds listening TCP sockets, those of every backend's processes and of processes that are named.

It alone may look at the sockets of every process, and it makes none of its own: ``python -m appliance.helpers.auditor``
answers on audit.sock (`appliance.wire.helpers`), and leaves when no question comes any more.

A socket is found by its number: the kernel's tables of a network namespace list the listening ones,
and the links in /proc/PID/fd show which a process has open. Each socket is reported once. A process that ends
meanwhile, or closes a descriptor, is no error.

A process may hold a socket of the box and be in a namespace of its own, so the box's table counts
for every process.
"""

import os
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from appliance.model.errors import ApplianceError
from appliance.model.names import AUDIT_SOCKET_UNIT
from appliance.system.kernel.processes import HoldingProcess, backend_unit, control_group, pids
from appliance.system.kernel.tcp_listeners import TcpListener, open_sockets, tcp_listeners
from appliance.system.kernel.text_files import PROC
from appliance.system.systemd.activation import serve_activated
from appliance.wire.conversation import ResultEvent
from appliance.wire.helpers import AUDIT, AuditEvent, AuditReport, AuditRequest, Listener
from appliance.wire.server import Peer

_WITHIN_S: Final = 2.0
_MOST_DESCRIPTORS: Final = 1 << 18
_MOST_ROWS: Final = 1 << 14
"""Listening sockets of one namespace."""
_MOST_REPORTED: Final = 1000
"""Listeners of an answer, which has to fit into one event."""
_CHECK_EVERY: Final = 64
"""Descriptors between two looks at the clock."""

_Table = Mapping[int, TcpListener]


def audit_listeners(
    named: Sequence[int], *, within_s: float = _WITHIN_S, init: int = 1
) -> AuditReport:
    """Return the listening sockets of backends, and of other processes that are named.

    Args:
        named: Process ids besides the backends' own.
        within_s: Longest time; what is not looked at then is missing.
        init: A process in the network namespace of the box.

    Raises:
        ApplianceError: the network namespace of the box is not known to this process.
    """
    audit = _Audit(time.monotonic() + within_s, init)
    for pid, unit in _backend_processes():
        audit.look_at(pid, unit)
        if audit.truncated:
            break
    for pid in dict.fromkeys(named):
        audit.look_at(pid)
    return AuditReport(listeners=tuple(audit.found), truncated=audit.truncated)


def _backend_processes() -> Iterator[tuple[int, str]]:
    for pid in pids():
        unit = backend_unit(control_group(pid))
        if unit:
            yield pid, unit


class _Audit:
    """One audit: what was found so far, and what it may still cost."""

    def __init__(self, deadline_s: float, init: int) -> None:
        self.found: list[Listener] = []
        self.truncated = False
        self._deadline_s = deadline_s
        self._descriptors = 0
        self._reported: set[int] = set()
        """Numbers of the sockets that were reported."""
        self._tables: dict[str, _Table] = {}
        """Listening sockets by number, for each network namespace."""
        box = _namespace(init)
        if not box:
            raise ApplianceError(f"the network namespace of process {init} cannot be read")
        self._box_table = self._table(init, box)

    def look_at(self, pid: int, unit: str | None = None) -> None:
        """Add the listening sockets of a process; `unit` None: of whatever unit it is."""
        namespace = _namespace(pid)
        if not namespace:
            return  # it has ended
        own = self._table(pid, namespace)
        if not own and not self._box_table:
            return
        for number in open_sockets(pid):
            if self._is_spent():
                return
            listener = self._box_table.get(number)
            of_box = listener is not None
            listener = listener or own.get(number)
            if listener is not None and number not in self._reported:
                self._reported.add(number)
                self._report(listener, pid, unit, of_box=of_box)

    def _report(self, listener: TcpListener, pid: int, unit: str | None, *, of_box: bool) -> None:
        process = HoldingProcess(pid)
        found = Listener(
            address=listener.address,
            port=listener.port,
            pid=pid,
            process=process.comm,
            unit=process.unit if unit is None else unit,
            is_reachable=of_box and not listener.is_loopback,
        )
        if len(self.found) < _MOST_REPORTED:
            self.found.append(found)
        else:
            self.truncated = True

    def _is_spent(self) -> bool:
        """Count a descriptor; say whether the audit has cost as much as it may."""
        self._descriptors += 1
        if self._descriptors % _CHECK_EVERY == 0:
            late = time.monotonic() > self._deadline_s
            self.truncated = self.truncated or late or self._descriptors > _MOST_DESCRIPTORS
        return self.truncated

    def _table(self, pid: int, namespace: str) -> _Table:
        """Return the listening sockets of a process's namespace."""
        table = self._tables.get(namespace)
        if table is None:
            rows = list(islice(tcp_listeners(pid), _MOST_ROWS + 1))
            self.truncated = self.truncated or len(rows) > _MOST_ROWS
            table = {row.inode: row for row in rows[:_MOST_ROWS]}
            # The table of a process that has ended meanwhile is empty, that of its namespace is not.
            if _namespace(pid) == namespace:
                self._tables[namespace] = table
        return table


def _namespace(pid: int) -> str:
    """Return the network namespace of a process; empty when it has ended or may not be seen."""
    try:
        return os.readlink(f"{PROC}/{pid}/ns/net")  # noqa: PTH115 - milliseconds of pathlib
    except OSError:
        return ""


async def answer(request: AuditRequest, _: Peer) -> AsyncGenerator[AuditEvent, None]:
    """Yield the listening sockets. Raises `ApplianceError`."""
    yield ResultEvent(details=audit_listeners(request.pids).details())


def main() -> int:
    """Run the auditor; returns its exit status."""
    return serve_activated(AUDIT_SOCKET_UNIT, AUDIT, answer)


if __name__ == "__main__":
    sys.exit(main())

"""Client of systemd's notification socket, sd_notify(3), for messages and descriptors.

The launch programs send with it, and daemons what has descriptors (`system.systemd.daemon`), so it imports
the standard library alone. `socket` is imported late: a gate that admits at once sends nothing and saves 4 ms.

Three status texts (STATUS= of sd_notify(3), StatusText of systemd) of a backend have a codec::

    loading                                       the engine's process runs and is not ready
    loading: 4.2 GiB resident, 12 s, …            the same, with details for people
    serving on :8022, ready after 3.20 s          the engine is ready
    not patched: not reported as applied: P4      the engine was not started

The launcher of a backend (launch.readiness, launch.backend) writes them; supervisor and health agent
decide on the words before the first colon alone, and on the first word of an engine that is ready.
systemd keeps the text of a unit whose processes have ended.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SEND_TIMEOUT_S = 5.0
_BARRIER_TIMEOUT_S = 15.0
_US = 1_000_000
_LOADING = "loading"
_SERVING = "serving"
_NOT_PATCHED = "not patched"


def notify(*assignments: str, descriptors: Sequence[int] = ()) -> bool:
    """Send assignments such as ``STATUS=…`` to the service manager as one message.

    Returns:
        Whether the message was sent; False also when no manager listens. Never raises: a lost
        message costs a status line, an exception would cost the model.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    import socket  # noqa: PLC0415

    if address.startswith("@"):  # the abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.settimeout(SEND_TIMEOUT_S)
            channel.connect(address)
            socket.send_fds(channel, [message_of(assignments)], list(descriptors))
    except OSError:
        return False
    return True


def message_of(assignments: Sequence[str]) -> bytes:
    """Return assignments as one message: a line each."""
    return "\n".join(a.replace("\n", " ") for a in assignments).encode()


def extend(seconds: float) -> str:
    """Return the assignment that moves the start time-out to `seconds` from now."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * _US)}"


def barrier() -> bool:
    """Wait until the manager has read everything sent before; False: it did not in time.

    systemd attributes a message to a unit by the control group of its sender, so the message of
    a sender that has ended before it is read is lost. The manager closes the descriptor that
    comes with ``BARRIER=1`` when it reads that message.
    """
    import select  # noqa: PLC0415

    ours, theirs = os.pipe2(os.O_CLOEXEC)
    try:
        sent = notify("BARRIER=1", descriptors=(theirs,))
    finally:
        os.close(theirs)
    try:
        if not sent:
            return False
        poll = select.poll()
        poll.register(ours, 0)  # hang-up is always reported
        return bool(poll.poll(_BARRIER_TIMEOUT_S * 1000))
    finally:
        os.close(ours)


def load_status(details: str = "") -> str:
    """Return the status text of an engine that loads."""
    return f"{_LOADING}: {details}" if details else _LOADING


def is_load_status(text: str) -> bool:
    """Tell whether a status text is that of an engine that loads."""
    return text.partition(":")[0] == _LOADING


def ready_status(details: str) -> str:
    """Return the status text of an engine that is ready; `details` follows the word."""
    return f"{_SERVING} {details}"


def is_of_running_engine(text: str) -> bool:
    """Tell whether a status text is that of an engine that loads or is ready, true while it runs."""
    return is_load_status(text) or text.partition(" ")[0] == _SERVING


def patch_failure(problem: str) -> str:
    """Return the status text of a backend whose patches have not been applied."""
    return f"{_NOT_PATCHED}: {problem}"


def is_patch_failure(text: str) -> bool:
    """Tell whether a status text is that of a backend whose patches have not been applied."""
    return text.partition(":")[0] == _NOT_PATCHED

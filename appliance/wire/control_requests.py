"""Requests of the control socket, and its table.

The table of verbs in docs/reference/control-protocol.md is generated from the docstrings of the types.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from appliance.model.errors import BadRequestError
from appliance.model.names import REQUEST_ID
from appliance.model.record import Record, Seconds, Whole
from appliance.model.words import Mark
from appliance.wire.control_events import (
    AcceptedEvent,
    ControlEvent,
    EndedEvent,
    OperationsRequest,
    PhaseEvent,
    StatusEvent,
    TicketEvent,
)
from appliance.wire.conversation import SocketTable

_MAX_GPUS: Final = 256


class StatusRequest(Record):
    """Request for the status document.

    Answer: `result` with `status`.
    """


class WatchStatusRequest(Record):
    """Request for the status document now, after each change and every two seconds.

    Answer: `status` again and again, until the client leaves; gateway, engines and GPUs are asked as for `status`.
    """


class GpuStateRequest(Record):
    """Request for the state of the GPUs, read at most once in a second: clocks, power, heat, use.

    Answer: `result` with the fields of `gpus` on the status socket.
    """


class SwitchRequest(Record):
    """Request to serve one profile, or several together, in place of those that conflict with them.

    Answer: an operation.
    """

    name: str | None = None
    """The profile. None: `names` has them; a supervisor that knows no sets then refuses the request."""
    dry_run: bool = False
    """Whether to tell only what would be done and what prevents it; likewise below."""
    rollback: bool = True
    """Whether to restore what served before when the switch fails."""
    drain_s: Seconds | None = None
    """Seconds for requests in flight; None: each profile's own deadline; 0: do not wait; likewise
    below."""
    names: tuple[str, ...] = ()
    """Profiles, in the order of their start, where `name` is null."""

    @classmethod
    def to(cls, names: Sequence[str], **options: Any) -> Self:
        """Return the request for profiles; one is asked for as every supervisor knows it."""
        return cls(names[0], **options) if len(names) == 1 else cls(names=tuple(names), **options)

    def targets(self) -> tuple[str, ...]:
        """Return the profiles. Raises `BadRequestError` where none is named, or each form has some."""
        if (self.name is None) != bool(self.names):
            raise BadRequestError("name is missing" if self.name is None else "name excludes names")
        return self.names if self.name is None else (self.name,)


class OnRequestSwitch(Record):
    """Request to switch because a client asked for a profile; on request.sock."""

    name: str
    on_behalf: str = ""
    """Short text for people that tells whose request it was."""


class AbandonRequest(Record):
    """Request to cancel a switch on request that no client waits for any more; on request.sock.

    Answer: `result`. An operation goes on that a person has asked for, or has joined.
    """

    operation: Whole = 0
    """Number of the operation."""


class StartRequest(Record):
    """Request to start profiles beside those that run.

    Answer: an operation.
    """

    names: tuple[str, ...] = ()
    """Names of profiles; empty: the committed ones."""
    dry_run: bool = False


class StopRequest(Record):
    """Request to stop profiles.

    Answer: an operation.
    """

    names: tuple[str, ...] = ()
    """Names of profiles; empty: all that run."""
    dry_run: bool = False
    drain_s: Seconds | None = None


class RestartRequest(Record):
    """Request to stop profiles and start them again.

    Answer: an operation.
    """

    names: tuple[str, ...] = ()
    """Names of profiles; empty: all that serve."""
    dry_run: bool = False
    drain_s: Seconds | None = None


class HoldRequest(Record):
    """Request to stop every profile and start none.

    Answer: an operation.
    """

    for_s: Seconds | None = None
    """Seconds of the hold; None: until a switch or a start ends it."""
    dry_run: bool = False
    drain_s: Seconds | None = None


class RunRequest(Record):
    """Request to make room for a command, which the client itself sends to the launcher.

    Answer: an operation that lasts as long as the command.
    """

    command: Annotated[str, msgspec.Meta(min_length=1)]
    """Name of the program, for people."""
    gpus: Literal["all"] | tuple[Annotated[int, msgspec.Meta(ge=0, lt=_MAX_GPUS)], ...]
    """Indexes of GPUs; `"all"`; empty: the CPU."""
    dry_run: bool = False
    drain_s: Seconds | None = None


class CancelRequest(Record):
    """Request to cancel the running operation.

    Answer: the events of that operation to its end, with exit status 0 when it was undone; at once when
    there is none.
    """

    operation: Whole | None = None
    """Number of the operation that is meant; another one goes on. None: whichever runs."""


class AttachRequest(Record):
    """Request to follow an operation unchanged.

    Answer: the events of the operation; of one that is over its `result`, as long as it is on record.
    """

    operation: Whole | None = None
    """Number of the operation; None: the running one."""


class CutRequest(Record):
    """Request to end one request of a client with an error for it.

    Answer: `result` with `cancelled`; false, with exit status 1: it is over.
    """

    request: Annotated[str, msgspec.Meta(pattern=REQUEST_ID)]
    """Id of the request, as `requests` on the status socket tells it."""


class MarkRequest(Record):
    """Request to set the mark of a profile or of a `[[watch]]` entry.

    Answer: `result`.
    """

    name: str
    mark: Mark
    """One of `live`, `standby` and `retired`."""


class UncommitRequest(Record):
    """Request to take a profile out of what a boot serves, also one that is no longer applied.

    Answer: `result` with `committed`: what a boot serves then.
    """

    name: str
    exclusive: bool = False
    """Whether a profile that owns devices alone is meant; else that is refused as `precondition`."""


class VerifyRequest(Record):
    """Request to compare what engines report about themselves with what their profiles declare.

    Answer: `result` with `profiles`: of each its `name`, and the `verification` of the status document; exit status 1 when
    one reports what its profile neither declares nor allows, 3 when it does not serve.
    """

    name: str | None = None
    """Profile; None: all that serve."""


class AddKeyRequest(Record):
    """Request to make an inference key.

    Answer: `result` with `key`, the text of the key, this once, and `id`.
    """

    name: str
    may_switch: bool = False
    profiles: tuple[str, ...] | None = None
    """Profiles that the key may use; None: all; an empty list is refused."""


class ListKeysRequest(Record):
    """Request for the list of inference keys, without their secrets.

    Answer: `result` with `keys`: `id`, `name`, `may_switch`, `profiles` and `created_unix_s` of each.
    """


class RemoveKeyRequest(Record):
    """Request to remove inference keys.

    Answer: `result` with `ids`.
    """

    name: str
    """Name or id of a key."""


class AddTokenRequest(Record):
    """Request to make a token, with which a program acts as an operator.

    Answer: `result` with `token`, the text of the token, this once, and `id`.
    """

    name: str
    user: str | None = None
    """Operator for whom the token stands; None: the user of the connection. Only root may name another."""
    for_s: Seconds | None = None
    """Seconds after which the token is refused; None: it does not expire."""


class ListTokensRequest(Record):
    """Request for the list of operators' tokens, without their secrets.

    Answer: `result` with `tokens`: `id`, `name`, `user`, `created_unix_s`, `created_by`, `expires_unix_s` (null: never),
    `expired` and `used_unix_s` (within ten minutes; null: never) of each.
    """


class RemoveTokenRequest(Record):
    """Request to remove tokens, which are refused from then on.

    Answer: `result` with `ids`.
    """

    name: str
    """Id of any token, or name of the requester's own."""


class ReloadRequest(Record):
    """Request to read the applied profiles again.

    Answer: `result`.
    """


ChangeRequest = (
    SwitchRequest
    | OnRequestSwitch
    | StartRequest
    | StopRequest
    | RestartRequest
    | HoldRequest
    | RunRequest
)
KeyRequest = AddKeyRequest | ListKeysRequest | RemoveKeyRequest
TokenRequest = AddTokenRequest | ListTokensRequest | RemoveTokenRequest
PlainRequest = (
    KeyRequest
    | TokenRequest
    | StatusRequest
    | GpuStateRequest
    | CutRequest
    | AbandonRequest
    | OperationsRequest
    | MarkRequest
    | UncommitRequest
    | ReloadRequest
)
"""Requests whose answer is one result."""
ControlRequest = (
    ChangeRequest
    | CancelRequest
    | AttachRequest
    | WatchStatusRequest
    | VerifyRequest
    | PlainRequest
)

CONTROL: Final[SocketTable[ControlRequest, ControlEvent]] = SocketTable(
    name="control socket",
    server="supervisor",
    unit="appliance-supervisor",
    group="appliance-operators",
    requests=(
        ("status", "", StatusRequest),
        ("watch", "", WatchStatusRequest),
        ("gpus", "", GpuStateRequest),
        ("operations", "", OperationsRequest),
        ("switch", "", SwitchRequest),
        ("start", "", StartRequest),
        ("stop", "", StopRequest),
        ("restart", "", RestartRequest),
        ("hold", "", HoldRequest),
        ("run", "", RunRequest),
        ("cancel", "", CancelRequest),
        ("attach", "", AttachRequest),
        ("cut", "", CutRequest),
        ("mark", "", MarkRequest),
        ("uncommit", "", UncommitRequest),
        ("verify", "", VerifyRequest),
        ("key", "add", AddKeyRequest),
        ("key", "ls", ListKeysRequest),
        ("key", "rm", RemoveKeyRequest),
        ("token", "add", AddTokenRequest),
        ("token", "ls", ListTokensRequest),
        ("token", "rm", RemoveTokenRequest),
        ("reload", "", ReloadRequest),
    ),
    events={
        "accepted": AcceptedEvent,
        "ticket": TicketEvent,
        "phase": PhaseEvent,
        "status": StatusEvent,
    },
    results={"operation": EndedEvent},
    closing=(EndedEvent,),
    # From there on the operation goes on without the client.
    until_left=(AcceptedEvent, WatchStatusRequest),
    # On request.sock, whose answers are the same.
    others={OnRequestSwitch: "switch", AbandonRequest: "cancel"},
)

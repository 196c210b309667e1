"""Access policy of the supervisor's sockets: the requests of each user, and the recorded requester.

==============  =======================  ====================================================
socket          who may connect          what is offered
==============  =======================  ====================================================
control.sock    appliance-operators      every verb
status.sock     appliance-status         the status, operations, and the GPUs
request.sock    appliance-gateway        a switch to a profile that requests may switch to, and its
                                         cancellation while no person has asked for it too
token.sock      appliance-web            what an operator does whose token each request has
==============  =======================  ====================================================

The mode of each socket says who may connect. Requesters are recorded by the kernel's credentials,
never by what a client says about itself. An engine is refused also when it runs as an operator.
"""

from dataclasses import dataclass
from typing import Final

from appliance.model.errors import PermissionDeniedError
from appliance.model.names import is_engine
from appliance.model.operators import TokenOperator
from appliance.model.wording import process_requester, short
from appliance.system.kernel.processes import group_name, user_name
from appliance.wire.control_requests import (
    CONTROL,
    AbandonRequest,
    ControlRequest,
    OnRequestSwitch,
)
from appliance.wire.conversation import ActingRequest, acting_request
from appliance.wire.json_values import Json
from appliance.wire.server import Peer
from appliance.wire.status_socket import STATUS, StatusSocketRequest
from appliance.wire.token_socket import TOKEN

_ON_REQUEST: Final = frozenset(OnRequestSwitch.__match_args__)
"""Arguments that a switch on request may have: none sets a deadline or prevents a roll-back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """Process that asked for an operation, and the client for whom the gateway asked."""

    uid: int
    pid: int
    user: str
    """Name of the user with `uid`, for people."""
    on_behalf: str | None = None
    """Client whose request caused a switch on request; None: the requester itself asks."""
    token: TokenOperator | None = None
    """Operator by whose token the process asked; None: by its own right."""

    @classmethod
    def by_token(cls, operator: TokenOperator, peer: Peer) -> "Requester":
        """Return the requester for whom a process has presented a token."""
        return cls(uid=operator.uid, pid=peer.pid, user=operator.user, token=operator)

    def __str__(self) -> str:
        """Return the text for log and history: "ana (uid 1000, pid 4121)", "ana (token phone)"."""
        if self.token is not None:
            return str(self.token)
        return process_requester(self.user, self.uid, self.pid, self.on_behalf)


def requester_of(peer: Peer, request: ControlRequest) -> Requester:
    """Return the requester, to be recorded."""
    on_behalf = short(request.on_behalf) if isinstance(request, OnRequestSwitch) else None
    return Requester(uid=peer.uid, pid=peer.pid, user=user_name(peer.uid), on_behalf=on_behalf)


def read_from_operator(verb: str, args: Json, peer: Peer) -> ControlRequest:
    """Return a request on control.sock.

    Raises:
        PermissionDeniedError: an engine asks.
        BadRequestError: it makes no sense.
    """
    _refuse_engine(peer)
    return CONTROL.decode_request(verb, args)


def read_from_watcher(verb: str, args: Json, peer: Peer) -> StatusSocketRequest:
    """Return a request on status.sock.

    Raises:
        PermissionDeniedError: an engine asks.
        BadRequestError: it makes no sense.
    """
    _refuse_engine(peer)
    return STATUS.decode_request(verb, args)


@dataclass(frozen=True, slots=True)
class ReadFromGateway:
    """Reader of the requests on request.sock; only the user `uid` is answered."""

    uid: int

    def __call__(self, verb: str, args: Json, peer: Peer) -> OnRequestSwitch | AbandonRequest:
        """Return a request on request.sock.

        Raises:
            PermissionDeniedError: another user asks, or for anything but a switch on request or its end.
            BadRequestError: it makes no sense.
        """
        if peer.uid != self.uid:
            who = requester_of(peer, OnRequestSwitch(""))
            raise PermissionDeniedError(f"this socket answers uid {self.uid} alone, not {who}")
        _refuse_engine(peer)
        if verb == "cancel" and type(args.get("operation")) is int and len(args) == 1:
            return CONTROL.filled(AbandonRequest, args)
        if verb != "switch":
            raise PermissionDeniedError(f"this socket does not take {verb}: appliance {verb}")
        if more := sorted(args.keys() - _ON_REQUEST):
            raise PermissionDeniedError(f"this socket does not take {short(', '.join(more))}")
        return CONTROL.filled(OnRequestSwitch, args)


@dataclass(frozen=True, slots=True)
class ReadByToken:
    """Reader of the requests on token.sock; only the user `uid` is answered."""

    uid: int

    def __call__(self, verb: str, args: Json, peer: Peer) -> ActingRequest:
        """Return a request on token.sock, whose token is not checked yet.

        Raises:
            PermissionDeniedError: another user asks, or there is no token.
            BadRequestError: it makes no sense.
        """
        if peer.uid != self.uid:
            who = requester_of(peer, OnRequestSwitch(""))
            raise PermissionDeniedError(f"this socket answers uid {self.uid} alone, not {who}")
        _refuse_engine(peer)
        request = acting_request(TOKEN.decode_request(verb, args), args)
        if request is None:
            raise PermissionDeniedError("this wants an operator's token: appliance token add NAME")
        return request


def _refuse_engine(peer: Peer) -> None:
    """Refuse a process of a model's unit. Raises `PermissionDeniedError`."""
    if is_engine(peer.uid, group_name(peer.gid)):
        who = requester_of(peer, OnRequestSwitch(""))
        raise PermissionDeniedError(f"{who} is an engine, and engines may not ask the supervisor")

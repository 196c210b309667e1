"""Routing table of requests, by the state that the supervisor last sent.

That state is kept in a file, so that a gateway that is restarted goes on as it was, also while no
supervisor runs. Before the first state ever, every request waits: after a boot the supervisor
comes up a moment later.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from appliance.model.gateway import Key, Refusal, Routed, Standing, State
from appliance.model.json_reader import decode_json
from appliance.routing.model_names import ModelDirectory, encode_model, encode_model_list, readiness
from appliance.routing.refusals import profile_not_applied
from appliance.system.files.regular import read_small_file, replace_volatile
from appliance.wire.gateway import decode_state, encode_state

_log = logging.getLogger(__name__)

STATE_FILE: Final = "state.json"
_MAX_BYTES: Final = 1 << 20
_MOST_LISTS: Final = 16
"""Limit of the lists of models that are kept: each may have 100 KiB."""
_MOST_READY: Final = 256
"""Limit of the names in `ready`: a pattern matches any number of names."""

RequestSwitch = Callable[[Routed, Key | None], None]
WatchCrashes = Callable[[State, State], None]


def _request_none(_profile: Routed, _key: Key | None) -> None:
    pass


def _watch_none(_before: State, _after: State) -> None:
    pass


class RoutingTable:
    """Routes of requests to profiles.

    Args:
        catalogue: Applied profiles, by name.
        directory: Where the state is kept; None: nowhere.
        request_switch: Called when a request begins to wait for a profile that is down.
    """

    def __init__(
        self,
        catalogue: Mapping[str, Routed],
        *,
        directory: Path | None = None,
        request_switch: RequestSwitch = _request_none,
    ) -> None:
        self._file = None if directory is None else directory / STATE_FILE
        self._catalogue = dict(catalogue)
        self._directory = ModelDirectory(self._catalogue)
        self._keeps = directory is not None
        self._told = self._read_state()
        """Last state of the supervisor; None: none was ever sent."""
        self._state = self._told or _starting(self._catalogue)
        self._failures: dict[str, Refusal] = {}
        self._changes: set[asyncio.Future[None]] = set()
        self.request_switch = request_switch
        self.watch_crashes: WatchCrashes = _watch_none
        """Called with the state before and after each change, before requests are routed anew."""
        self.ready: dict[str | None, Routed] = {}
        """Profile by model name, for requests without a key that may go to it at once.

        It has what `route` and `readiness` would return, for some of the names that were asked for
        since the last change: one look-up for two calls.
        """
        self._lists: dict[tuple[str, ...] | None, bytes] = {}
        """Lists of models by the profiles that a key may use; None: all."""
        self._open = _open_profiles(self._catalogue, self._state)
        self._reserved: frozenset[str] = frozenset()
        self._unresponsive: frozenset[str] = frozenset()

    @property
    def state(self) -> State:
        return self._state

    @property
    def catalogue(self) -> Mapping[str, Routed]:
        """Return the applied profiles, by name."""
        return self._catalogue

    # --- calls for a request -------------------------------------------------------------

    def route(self, model: str | None, key: Key | None) -> Routed | Refusal:
        """Return the profile for a request. The profile may be held or down, see `readiness`.

        Args:
            model: Name that the client asks for; None: the request names none.
            key: Key of the request; None: a request from this machine, without a key.
        """
        routed = self._directory.resolve(model, self._state, key)
        if (
            key is None
            and isinstance(routed, Routed)
            and routed.name in self._open
            and len(self.ready) < _MOST_READY
        ):
            self.ready[model] = routed
        return routed

    def readiness(self, name: str, key: Key | None, *, is_work: bool = True) -> bool | Refusal:
        """Tell whether a request to a profile may go now; False: not before a change.

        Asks for a switch, where that is allowed and needed. A request that waits is routed again
        after the change: another profile may then be the default.

        Args:
            name: Profile.
            key: Key of the request; None: a request from this machine, without a key.
            is_work: The request is for an answer of the model, so that it may cause a switch.
        """
        if name in self._open:
            return True
        if self.is_reserved(name):
            return False
        profile = self._catalogue.get(name)
        if profile is None:
            return profile_not_applied(name)
        switches = is_work and may_switch(key) and not self._state.paused
        found = readiness(profile, self._state, may_switch=switches)
        if found is not False or not _is_down(name, self._state):
            return found
        if name in self._failures:
            return self._failures[name]
        # Requested every time, not only when the wait begins: an earlier switch may have failed.
        self.request_switch(profile, key)
        return False

    def is_reserved(self, name: str) -> bool:
        """Tell whether a profile serves, but its requests wait for the end of a lease."""
        return name in self._reserved and name in _open_profiles((name,), self._state)

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done at the next change of any route or readiness."""
        future = asyncio.get_running_loop().create_future()
        self._changes.add(future)
        future.add_done_callback(self._changes.discard)
        return future

    def models(self, key: Key | None) -> bytes:
        """Return the body of ``GET /v1/models``, made once between two changes for most clients."""
        profiles = None if key is None else key.profiles
        known = self._lists.get(profiles)
        if known is None:
            known = encode_model_list(
                self._directory, self._state, key, unresponsive=self._unresponsive
            )
            if len(self._lists) < _MOST_LISTS:
                self._lists[profiles] = known
        return known

    def model(self, name: str, key: Key | None) -> bytes | Refusal:
        """Return the body of ``GET /v1/models/NAME``."""
        return encode_model(
            name, self._directory, self._state, key, unresponsive=self._unresponsive
        )

    # --- changes ---------------------------------------------------------------------

    def take(self, state: State) -> None:
        """Route by a new state of the supervisor."""
        if state == self._told:
            return
        self.watch_crashes(self._state, state)
        self._told = self._state = state
        self._failures = {n: f for n, f in self._failures.items() if _is_down(n, state)}
        self._keep(state)
        self._wake()

    def hold(self, names: Sequence[str]) -> None:
        """Hold new requests for these profiles until the next state."""
        self.take(replace(self._state, held=self._state.held | set(names)))

    def adopt(self, catalogue: Mapping[str, Routed]) -> None:
        """Route to these profiles from now on."""
        self._catalogue = dict(catalogue)
        self._directory = ModelDirectory(self._catalogue)
        if self._told is None:
            self._state = _starting(self._catalogue)
        self._wake()

    def reserve(self, names: Iterable[str]) -> None:
        """Have new requests for these profiles wait, and for no others."""
        reserved = frozenset(names)
        if reserved != self._reserved:
            self._reserved = reserved
            self._wake()

    def show_unresponsive(self, names: Iterable[str]) -> None:
        """Say in the list of models that these do not answer, and no others; requests go on as they did."""
        self._unresponsive = frozenset(names)
        self._lists.clear()

    def fail(self, name: str, refusal: Refusal) -> None:
        """Refuse all requests that wait for a profile."""
        self._failures[name] = refusal
        self._wake()

    def forgive(self, name: str) -> None:
        """Let requests for a profile wait again after a failure."""
        self._failures.pop(name, None)

    def _wake(self) -> None:
        self.ready.clear()
        self._lists.clear()
        self._open = _open_profiles(self._catalogue, self._state) - self._reserved
        for future in tuple(self._changes):
            if not future.done():
                future.set_result(None)

    def retire(self) -> None:
        """Write the state no more, since the process that has taken over writes it."""
        self._keeps = False

    def follow(self) -> None:
        """Follow the state that the other process has written last."""
        if (state := self._read_state()) is not None:
            self.take(state)

    # --- the file --------------------------------------------------------------------

    def _read_state(self) -> State | None:
        if self._file is None:
            return None
        try:
            return decode_state(decode_json(read_small_file(self._file, _MAX_BYTES)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("the state file %s cannot be read: %s", self._file, error)
            return None

    def _keep(self, state: State) -> None:
        """Write the state to a tmpfs, which a restart keeps and a boot clears: no fsync."""
        if self._file is None or not self._keeps:
            return
        # During a hand-over two processes write, each a temporary file of its own.
        new = self._file.with_name(f".{STATE_FILE}.{os.getpid()}")
        try:
            replace_volatile(self._file, new, json.dumps(encode_state(state)))
        except OSError as error:
            _log.warning("the state file %s cannot be written: %s", self._file, error)


def _open_profiles(catalogue: Iterable[str], state: State) -> frozenset[str]:
    """Return the profiles that requests go to at once."""
    return frozenset(
        name
        for name in catalogue
        if name not in state.held and state.standing(name) is Standing.SERVING
    )


def may_switch(key: Key | None) -> bool:
    """Tell whether a request may cause a switch; one without a key is of this machine."""
    return key is None or key.may_switch


def _starting(catalogue: Iterable[str]) -> State:
    """Return a state in which every profile may be about to serve."""
    names = tuple(sorted(catalogue))
    return State(standings=dict.fromkeys(names, Standing.STARTING), target=names)


def _is_down(name: str, state: State) -> bool:
    return name not in state.held and state.standing(name) is Standing.DOWN

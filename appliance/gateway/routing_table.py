"""Who serves what, now: the interface `Router`, as the supervisor last told it.

The last word of the supervisor is kept in a file, so that a gateway that is restarted goes on as
it was, also while no supervisor is there. Before the first word ever, every request waits: after
a boot the supervisor comes a moment later.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from appliance.adapters.files.regular import read_small_file, replace_volatile
from appliance.domain.gateway import Key, Refusal, Routed, Standing, State
from appliance.planning.routing.model_list import entry, listing
from appliance.planning.routing.model_names import Directory, ready
from appliance.protocol.gateway import decode_state, encode_state

_log = logging.getLogger(__name__)

STATE_FILE: Final = "state.json"
_MAX_BYTES: Final = 1 << 20
_MOST_ROUTES: Final = 256
"""That are remembered: a pattern takes any number of names."""

Wish = Callable[[Routed, Key | None], None]


def _nothing(_profile: Routed, _key: Key | None) -> None:
    pass


class Table:
    """What is told to clients.

    Args:
        catalogue: The applied profiles, by name.
        directory: Where the state is kept; None: nowhere.
        wish: Called when a request begins to wait for a profile that is down.
    """

    def __init__(
        self,
        catalogue: Mapping[str, Routed],
        *,
        directory: Path | None = None,
        wish: Wish = _nothing,
    ) -> None:
        self._file = None if directory is None else directory / STATE_FILE
        self._catalogue = dict(catalogue)
        self._directory = Directory(self._catalogue)
        self._keeps = directory is not None
        self._told = self._kept()
        self._state = self._told or _unknown(self._catalogue)
        self._failures: dict[str, Refusal] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self.wish = wish
        self._routes: dict[str | None, Routed] = {}
        """Where requests without a key were sent since the last change, by what they asked for."""
        self._going = _going(self._catalogue, self._state)

    @property
    def state(self) -> State:
        """What serves."""
        return self._state

    @property
    def catalogue(self) -> Mapping[str, Routed]:
        """The applied profiles, by name."""
        return self._catalogue

    # --- what a request asks ---------------------------------------------------------

    def route(self, model: str | None, key: Key | None) -> Routed | Refusal:
        """The profile for a request; it may be held or down yet."""
        if key is not None:
            return self._directory.resolve(model, self._state, key)
        found = self._routes.get(model)
        if found is not None:
            return found
        routed = self._directory.resolve(model, self._state, None)
        if isinstance(routed, Routed) and len(self._routes) < _MOST_ROUTES:
            self._routes[model] = routed
        return routed

    def ready(self, name: str, key: Key | None) -> bool | Refusal:
        """Whether a request to a profile may go now; False: it has to wait for a change."""
        if name in self._going:
            return True
        profile = self._catalogue.get(name)
        if profile is None:
            return _gone(name)
        asks = may_switch(key) and not self._state.paused
        answer = ready(profile, self._state, may_switch=asks)
        if answer is not False or not _is_down(name, self._state):
            return answer
        if name in self._failures:
            return self._failures[name]
        # Here, and not only when it begins to wait: what it waited for may have gone since.
        self.wish(profile, key)
        return False

    def changed(self) -> asyncio.Future[None]:
        """Is done at the next change; one's own, to be cancelled at will."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    def models(self, key: Key | None) -> bytes:
        """The body of ``GET /v1/models``."""
        return listing(self._directory, self._state, key)

    def model(self, name: str, key: Key | None) -> bytes | Refusal:
        """The body of ``GET /v1/models/NAME``."""
        return entry(name, self._directory, self._state, key)

    # --- what changes it -------------------------------------------------------------

    def take(self, state: State) -> None:
        """Serve by this from now on."""
        if state == self._told:
            return
        self._told = self._state = state
        self._failures = {n: f for n, f in self._failures.items() if _is_down(n, state)}
        self._keep(state)
        self._wake()

    def hold(self, names: Sequence[str]) -> None:
        """Let new requests for these wait, until the next state says otherwise."""
        self.take(replace(self._state, held=self._state.held | set(names)))

    def adopt(self, catalogue: Mapping[str, Routed]) -> None:
        """Route to these profiles from now on."""
        self._catalogue = dict(catalogue)
        self._directory = Directory(self._catalogue)
        if self._told is None:
            self._state = _unknown(self._catalogue)
        self._wake()

    def fail(self, name: str, refusal: Refusal) -> None:
        """Tell everybody who waits for a profile why it does not come."""
        self._failures[name] = refusal
        self._wake()

    def forgive(self, name: str) -> None:
        """Whoever asks for it from now on waits again."""
        self._failures.pop(name, None)

    def _wake(self) -> None:
        self._routes.clear()
        self._going = _going(self._catalogue, self._state)
        for future in tuple(self._waiting):
            if not future.done():
                future.set_result(None)

    def retire(self) -> None:
        """Keep nothing any more: another process does, whom `follow` goes by."""
        self._keeps = False

    def follow(self) -> None:
        """Serve by what that process has kept last."""
        if (state := self._kept()) is not None:
            self.take(state)

    # --- what survives ---------------------------------------------------------------

    def _kept(self) -> State | None:
        if self._file is None:
            return None
        try:
            return decode_state(json.loads(read_small_file(self._file, _MAX_BYTES)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            _log.warning("%s is of no use: %s", self._file, error)
            return None

    def _keep(self, state: State) -> None:
        """In memory that a restart survives and a boot does not: nothing to be synchronised."""
        if self._file is None or not self._keeps:
            return
        # At a hand-over two processes write, each its own.
        new = self._file.with_name(f".{STATE_FILE}.{os.getpid()}")
        try:
            replace_volatile(self._file, new, json.dumps(encode_state(state)))
        except OSError as error:
            _log.warning("the state is not kept: %s", error)


def _going(catalogue: Iterable[str], state: State) -> frozenset[str]:
    """Profiles that requests go to without further ado; most ask for one of them."""
    return frozenset(
        name
        for name in catalogue
        if name not in state.held and state.standing(name) is Standing.SERVING
    )


def may_switch(key: Key | None) -> bool:
    """Whether a request may have the box switched; one without a key is of the box itself."""
    return key is None or key.may_switch


def _unknown(catalogue: Iterable[str]) -> State:
    """Everything may be about to serve."""
    names = tuple(sorted(catalogue))
    return State(standings=dict.fromkeys(names, Standing.STARTING), target=names)


def _is_down(name: str, state: State) -> bool:
    return name not in state.held and state.standing(name) is Standing.DOWN


def _gone(name: str) -> Refusal:
    message = f"{name} is no longer applied"
    return Refusal(status=404, code="model_not_found", message=message, param="model")

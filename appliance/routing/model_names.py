"""Model names: the profile that a request is for, whether the request may go to it now, and the list of models.

Profiles are looked up in this order; the first step that finds any decides:

1. the profile of that name
2. profiles that serve exactly that name
3. profiles that serve a pattern that matches, the one with the longest text before its first
   wildcard; ``*`` stands for any text, ``?`` for one character
4. for ``default``, and for a request that names no model: the default profile

Among several profiles of one step the one that serves comes first, then one that starts, then a
committed one, then the order of names. A key sees only the profiles that it may use.

The list of models is in OpenAI's form and Anthropic's at once, with what servers of local models add.
Their fields do not contradict each other, and clients of either skip fields they do not know:

==================  ====================================================================================
field               who reads it
==================  ====================================================================================
``status.value``    clients of llama-server's router and of llama-swap: loaded, loading, unloaded; failed, also
                    while an unresponsive engine holds its model: who picks by the value needs an answer
``status.failed``   clients of llama-server's router, whose value for a failed model is unloaded
``meta.n_ctx``      clients of llama-server
``context_length``  clients of OpenRouter and its likes
``max_model_len``   clients of vLLM, as ``parent``: the model of an adapter, null of a model
``name``            Open WebUI
``type`` …          clients of Anthropic's API: ``type``, ``display_name``, ``created_at``
``profile`` …       ours: ``profile``, ``served``, ``state``, ``on_request``
==================  ====================================================================================
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from appliance.model.gateway import Key, ModelCard, Refusal, Routed, Standing, State
from appliance.model.profile import Applied, is_pattern, plain_names
from appliance.model.wording import closest
from appliance.routing import refusals

DEFAULT: Final = "default"
_WILDCARD: Final = re.compile(r"[*?]")
_MOST_LISTED: Final = 20
_LONGEST_QUOTE: Final = 100
_LONGEST_MEANT: Final = 64
"""Longest name for which a similar one is looked for."""
_MOST_COMPARED: Final = 100
"""Names that it is compared with: a look takes about 10 us for each."""
_LONGEST_NAME: Final = 256
"""Longest name that is matched with patterns: clients choose the length."""


def routed(applied: Applied, engine_key: str | None = None) -> Routed:
    """Return a profile as the gateway routes to it.

    Args:
        applied: As it is installed.
        engine_key: What the engine wants as a bearer token; None: nothing.
    """
    names = plain_names(applied.served, applied.name)
    return Routed(
        name=applied.name,
        served=applied.names,
        engine_name=None if applied.handling.keep_names else names[0],
        engine_names={
            **dict.fromkeys((applied.name, DEFAULT), names[0]),
            **{name: name for name in names},
            **{adapter.name: adapter.engine_name for adapter in applied.adapters},
        },
        adapters={adapter.name: names[0] for adapter in applied.adapters},
        endpoint=applied.endpoint,
        exclusive=bool(applied.claim.devices),
        handling=applied.handling,
        engine_key=engine_key,
        card=ModelCard(
            created_unix_s=applied.file_unix_s,
            context_tokens=applied.context_tokens,
            capabilities={name: has for name, has in _capabilities(applied) if has is not None},
        ),
    )


def _capabilities(applied: Applied) -> tuple[tuple[str, bool | None], ...]:
    abilities = applied.abilities
    return (
        ("tools", applied.tools),
        ("vision", abilities.vision),
        ("embeddings", abilities.embeddings),
        ("reasoning", abilities.reasoning),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    expression: re.Pattern[str]
    literal: int
    """Characters before the first wildcard."""
    text: str
    profiles: tuple[str, ...]


class ModelDirectory:
    """Applied profiles, looked up by the model names that clients send.

    Args:
        catalogue: Applied profiles by name.
    """

    def __init__(self, catalogue: Mapping[str, Routed]) -> None:
        self._catalogue = catalogue
        names: dict[str, list[str]] = {}
        patterns: dict[str, list[str]] = {}
        for name in sorted(catalogue):
            for served in dict.fromkeys(catalogue[name].served):
                group = patterns if is_pattern(served) else names
                group.setdefault(served, []).append(name)
        # No other profile can serve a profile's own name.
        self._names = {n: tuple(p) for n, p in names.items()} | {n: (n,) for n in catalogue}
        self._patterns = sorted(
            (_compile_pattern(text, tuple(profiles)) for text, profiles in patterns.items()),
            key=lambda pattern: (-pattern.literal, pattern.text),
        )

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Return every exact name, with the profiles that serve it."""
        return self._names

    def resolve(self, model: str | None, state: State, key: Key | None = None) -> Routed | Refusal:
        """Return the profile for a request, even one that is held, loading or down.

        Args:
            model: Model that the client asks for; None or empty: none.
            state: What serves now.
            key: Key of the request; None: none, and every profile may be used.
        """
        found = [name for name in self._candidates(model or DEFAULT) if may_use(key, name)]
        if found:
            # Nearly always there is one.
            best = found[0] if len(found) == 1 else min(found, key=lambda n: (_rank(n, state), n))
            return self._catalogue[best]
        if model and model != DEFAULT:
            return self._not_found(model, state, key)
        name = default_profile(self._catalogue, state, key)
        return self._none_serves(state) if name is None else self._catalogue[name]

    @staticmethod
    def _none_serves(state: State) -> Refusal:
        return refusals.box_paused(lent=state.lent) if state.paused else refusals.NO_MODEL

    def _candidates(self, model: str) -> tuple[str, ...]:
        exact = self._names.get(model)
        if exact is not None:
            return exact
        if len(model) > _LONGEST_NAME:
            return ()
        matching = (p.profiles for p in self._patterns if p.expression.fullmatch(model))
        return next(matching, ())

    def _not_found(self, model: str, state: State, key: Key | None) -> Refusal:
        quoted = f'"{model[:_LONGEST_QUOTE]}"'
        if self._candidates(model):
            return refusals.model_not_allowed(key.name if key else "", quoted)
        there = sorted(
            (n for n in self._catalogue if may_use(key, n)), key=lambda n: (_rank(n, state), n)
        )
        more = ", …" if len(there) > _MOST_LISTED else ""
        listed = ", ".join(there[:_MOST_LISTED]) + more if there else "none"
        return refusals.model_not_found(quoted, listed, self._similar(model, there, key))

    def _similar(self, model: str, there: Sequence[str], key: Key | None) -> str | None:
        """Return the name that a client may have meant; None: none is close, or a search is too long."""
        if len(model) > _LONGEST_MEANT:
            return None
        others = (n for n, p in self._names.items() if any(may_use(key, one) for one in p))
        return closest(model, islice(dict.fromkeys([*there, *others]), _MOST_COMPARED))


def default_profile(
    catalogue: Mapping[str, Routed], state: State, key: Key | None = None
) -> str | None:
    """Return the profile of requests that name none; None: none serves, starts or is committed.

    A profile that serves comes before one that an operation brings up, that before a committed one
    that is down. Profiles without a device of their own come last of all.
    """
    free = [n for n in state.standings if _serves(n, state)]
    order = [*_in_order(free, state), *state.target, *state.committed]
    there = [name for name in order if name in catalogue and may_use(key, name)]
    return next((n for n in there if catalogue[n].exclusive), next(iter(there), None))


def readiness(profile: Routed, state: State, *, may_switch: bool = False) -> bool | Refusal:
    """Tell whether a request may go to a profile now; False: the request waits for a change.

    Args:
        profile: Profile of the request.
        state: What serves now.
        may_switch: The request may cause a switch to another profile.
    """
    standing = state.standing(profile.name)
    if profile.name in state.held or standing is Standing.STARTING:
        return False
    if standing is Standing.SERVING:
        return True
    return False if may_switch and profile.handling.on_request else _not_active(profile, state)


def _not_active(profile: Routed, state: State) -> Refusal:
    is_committed = profile.name in state.committed
    if profile.name in state.retired:
        return refusals.model_retired(profile.name)
    if is_committed and state.paused:
        return refusals.box_paused(lent=state.lent)
    if profile.name in state.failed:
        return refusals.model_failed(profile.name, is_repaired=is_committed)
    if is_committed:
        return refusals.model_unavailable(profile.name)
    serving = [n for n in state.standings if _serves(n, state)]
    return refusals.model_not_active(profile.name, _in_order(serving, state))


def may_use(key: Key | None, profile: str) -> bool:
    return key is None or key.profiles is None or profile in key.profiles


def covers(pattern: str, name: str) -> bool:
    """Tell whether a served pattern matches a name."""
    return _compile_pattern(pattern, ()).expression.fullmatch(name) is not None


def _compile_pattern(text: str, profiles: tuple[str, ...]) -> _Pattern:
    first, *rest = (_escape(part) for part in re.split(r"\*+", text))
    # Each part between two stars matches at its first occurrence, without backtracking: a later
    # occurrence would match nothing more, and with many stars backtracking would not end in time.
    between = "".join(f"(?>.*?{part})" for part in rest[:-1])
    end = f".*{rest[-1]}" if rest else ""
    expression = re.compile(f"{first}{between}{end}", re.DOTALL)
    literal = len(_WILDCARD.split(text, maxsplit=1)[0])
    return _Pattern(expression=expression, literal=literal, text=text, profiles=profiles)


def _escape(part: str) -> str:
    """Return a part of a pattern without stars as a regular expression."""
    return ".".join(map(re.escape, part.split("?")))


def _serves(name: str, state: State) -> bool:
    return name not in state.held and state.standing(name) is Standing.SERVING


def _rank(name: str, state: State) -> int:
    if _serves(name, state):
        return 0
    if name in state.held or name in state.target or state.standing(name) is Standing.STARTING:
        return 1
    return 2 if name in state.committed else 3


def _in_order(names: Iterable[str], state: State) -> list[str]:
    """Return names in the order in which they were committed, then by name."""
    order = {name: at for at, name in enumerate(state.committed)}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


_SERVING: Final = Standing.SERVING.value
_HELD: Final = "held"
_FAILED: Final = "failed"
_UNRESPONSIVE: Final = "unresponsive"
_LATEST_UNIX_S: Final = 253402300799
"""Last second of the year 9999, which the form of ``created_at`` ends with."""

Entry = Mapping[str, object]


def encode_model_list(
    directory: ModelDirectory,
    state: State,
    key: Key | None = None,
    *,
    unresponsive: Collection[str] = (),
) -> bytes:
    """Return the body of ``GET /v1/models``: models that serve first, then by name.

    Args:
        directory: Applied profiles.
        state: What serves now.
        key: Key of the request; None: none, and every profile may be used.
        unresponsive: Profiles whose engines run and do not answer, as the health agent has found.
    """
    data = _entries(directory, state, key, unresponsive)
    ids = [entry["id"] for entry in data]
    return _encode(
        {
            "object": "list",
            "data": data,
            "has_more": False,
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
        }
    )


def encode_model(
    name: str,
    directory: ModelDirectory,
    state: State,
    key: Key | None = None,
    *,
    unresponsive: Collection[str] = (),
) -> bytes | Refusal:
    """Return the body of ``GET /v1/models/NAME``.

    Args:
        name: Name of a profile, or one that a profile serves; patterns count.
        directory: Applied profiles.
        state: What serves now.
        key: As for `encode_model_list`.
        unresponsive: As for `encode_model_list`.
    """
    found = directory.resolve(name, state, key)
    if isinstance(found, Refusal):
        return found
    return _encode(_entry(name, found, state, unresponsive))


def _entries(
    directory: ModelDirectory, state: State, key: Key | None, unresponsive: Collection[str]
) -> list[Entry]:
    found: list[tuple[bool, str, Entry]] = []
    allowed = (
        n for n, profiles in directory.names.items() if any(may_use(key, p) for p in profiles)
    )
    for name in dict.fromkeys((*allowed, DEFAULT)):
        routed = directory.resolve(name, state, key)
        # Only the default may lead nowhere: of any other name one profile may be used.
        if isinstance(routed, Routed):
            shown = _entry(name, routed, state, unresponsive)
            found.append((shown["state"] != _SERVING, name, shown))
    return [shown for _, _, shown in sorted(found, key=lambda item: item[:2])]


def _entry(name: str, profile: Routed, state: State, unresponsive: Collection[str]) -> Entry:
    card = profile.card
    shown = _state(profile.name, state)
    if shown == _SERVING and profile.name in unresponsive:
        shown = _UNRESPONSIVE
    status = _status(profile.name, shown, state)
    entry: dict[str, object] = {
        "id": name,
        "object": "model",
        "created": card.created_unix_s,
        "owned_by": "appliance",
        "parent": profile.adapters.get(name),
        "name": name,
        "type": "model",
        "display_name": name,
        "created_at": _rfc3339(card.created_unix_s),
        "status": {"value": status, "failed": True} if status == _FAILED else {"value": status},
        "capabilities": card.capabilities,
        "profile": profile.name,
        "served": list(profile.served),
        "state": shown,
        "on_request": profile.handling.on_request,
    }
    if card.context_tokens is not None:
        entry |= {
            "context_length": card.context_tokens,
            "max_model_len": card.context_tokens,
            "meta": {"n_ctx": card.context_tokens},
        }
    return entry


def _state(profile: str, state: State) -> str:
    if profile in state.held:
        return _HELD
    standing = state.standing(profile)
    return _FAILED if standing is Standing.DOWN and profile in state.failed else standing.value


def _status(profile: str, shown: str, state: State) -> str:
    """Return llama-server's word for a state: a held profile is loaded soon, or has been."""
    if shown == _HELD:
        return "loading" if profile in state.target else "unloaded"
    words = {
        _SERVING: "loaded",
        Standing.STARTING.value: "loading",
        _FAILED: _FAILED,
        _UNRESPONSIVE: _FAILED,
    }
    return words.get(shown, "unloaded")


def _rfc3339(unix_s: int) -> str:
    moment = datetime.fromtimestamp(min(max(unix_s, 0), _LATEST_UNIX_S), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()

"""Wording of names, lists and suggestions for people."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Final

    from appliance.model.status import OperationRow

_SHORT: Final = 64
"""Longest text of a client in a message, in characters; a profile's name has at most 48."""
_PROCESS: Final = " (uid "
_FOR: Final = " as "


def joined(names: Sequence[str], *, nothing: str = "nothing") -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``; `nothing` for no names."""
    if not names:
        return nothing
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to `word`; None: none is close."""
    # Imported late: only an error needs it.
    from difflib import get_close_matches  # noqa: PLC0415

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.6)), None)


def short(text: str) -> str:
    """Return a client's text fit for a message: cut, on one line, without control characters."""
    if len(text) > _SHORT:
        text = f"{text[:_SHORT]}…"
    return printable(text)


def printable(text: str) -> str:
    """Return a text on one line, with escapes in place of control characters and lone surrogates."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def process_requester(user: str, uid: int, pid: int, on_behalf: str | None = None) -> str:
    """Return the text that records a process: "ana (uid 1000, pid 4121)", and for whom it asks."""
    process = f"{user}{_PROCESS}{uid}, pid {pid})"
    return f"{on_behalf}{_FOR}{process}" if on_behalf else process


def requester_name(recorded: str) -> str:
    """Return who a recorded requester is, without its process: "ana", "key laptop"."""
    return recorded.partition(_FOR)[0].partition(_PROCESS)[0]


def no_such_profile(name: str, known: Iterable[str], *, watches: Iterable[str] = ()) -> str:
    """Return the sentence for a profile that is not applied, with a suggestion where one is close.

    Args:
        name: The name that was given.
        known: Names of the applied profiles.
        watches: Names of ``[[watch]]`` entries, where these are meant too.
    """
    profiles, others = sorted(known), sorted(watches)
    name, what = short(name), "profile or watch" if others else "profile"
    if not profiles and not others:
        return f'no profile "{name}": none is applied yet (sudo appliance apply)'
    meant = closest(name, [*profiles, *others])
    if meant is None:
        return f'no {what} "{name}": appliance list --all'
    return f'no {what} "{name}". Did you mean "{meant}"?'


def running_sentences(operation: OperationRow | None) -> list[str]:
    """Return the sentence about the running operation; empty: none runs."""
    if operation is None:
        return []
    names = joined(operation.target, nothing="")  # a stop or a hold without names is of everything
    kind = operation.kind or "an operation"
    what = f"{kind} to {names}" if kind == "switch" else f"{kind} {names}".rstrip()
    by = f" by {requester_name(operation.requested_by)}" if operation.requested_by else ""
    return [f"{what}{by} is running ({operation.phase or 'starting'}): appliance wait"]

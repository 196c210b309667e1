"""Documents that one rendering of the page is made from, and where they come from."""

from dataclasses import dataclass
from typing import Protocol

from appliance.model.measurements import Probe
from appliance.web.box_documents import BoxDocuments, Document


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusDocuments:
    """Documents about the one profile that the page shows in detail. None: no answer in time."""

    name: str
    since_unix_s: float
    """Beginning of the history that was asked for."""
    history: Document | None = None
    """Answer of the health agent to `history`."""
    probes: tuple[Probe, ...] | None = None
    """Last probes, the newest first."""
    log: tuple[str, ...] | None = None
    """Last lines of the engine's log, oldest first; None too where the reader may not see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDocuments:
    """Documents of one moment."""

    box: BoxDocuments
    focus: FocusDocuments | None = None
    """None: there is no profile."""
    operations: tuple[Document, ...] = ()
    """Operations that ended lately."""
    states: Document | None = None
    """Record of the profiles' states; None: not known."""
    requests: Document | None = None
    """Requests of clients in flight and held; None: not known."""


class FocusSource(Protocol):
    """Source of the documents about one profile, and of the operations on record."""

    async def operations(self) -> tuple[Document, ...]:
        """Return the operations that ended lately; none where the supervisor does not answer."""
        ...

    async def states(self) -> Document | None:
        """Return the record of the profiles' states; None: the health agent does not answer."""
        ...

    async def requests(self) -> Document | None:
        """Return the requests of clients in flight and held; None: the gateway does not answer."""
        ...

    async def look_at(self, name: str, *, with_log: bool) -> FocusDocuments:
        """Return the documents of a profile that is applied; what no daemon answers is None.

        Args:
            name: Of the profile.
            with_log: Whether the log of its engine is read; else it is None.
        """
        ...

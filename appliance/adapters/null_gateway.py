"""The gateway of a box that has none: every step is skipped, and says so."""

from collections.abc import Sequence


class NullGateway:
    """The port `Gateway` without a gateway. Clients talk to the backend's own port."""

    async def hold(self) -> str | None:
        """Skipped: there is nobody who could queue requests."""
        return None

    async def drain(self, names: Sequence[str], timeout_s: float) -> str | None:  # noqa: ARG002
        """Skipped: the engine's own stop decides what happens to requests in flight."""
        return None

    async def release(self, serving: Sequence[str]) -> str | None:  # noqa: ARG002
        """Skipped."""
        return None

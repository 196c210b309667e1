"""Fixtures of the notifier's tests."""

from collections.abc import Iterator

import pytest

from tests.fakes.ntfy_server import NtfyServer


@pytest.fixture
def server() -> Iterator[NtfyServer]:
    """A server of ntfy, webhooks and pings."""
    with NtfyServer() as running:
        yield running

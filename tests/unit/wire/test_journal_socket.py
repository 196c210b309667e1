"""Entries for the journal: their encoding, their bounds, and a socket that never makes anybody wait."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.wire.journal_socket import (
    MOST_ENTRY_BYTES,
    MOST_VALUE_BYTES,
    JournalSocket,
    encode_entry,
    stderr_is_journal,
)
from tests.fakes.journal_receiver import JournalReceiver, decoded

NAMES = st.sampled_from(["MESSAGE", "APPLIANCE_PROFILE", "MESSAGE_ID"])


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[JournalReceiver]:
    """Journal that reads when it is asked to."""
    receiver = JournalReceiver(tmp_path / "journal")
    yield receiver
    receiver.close()


@given(st.lists(st.tuples(NAMES, st.text(max_size=40))))
def test_every_field_arrives_as_it_was(fields: list[tuple[str, str]]) -> None:
    """Text with line breaks, equal signs or half a surrogate pair makes no field of its own."""
    expected: dict[str, list[str]] = {}
    for name, text in fields:
        expected.setdefault(name, []).append(text.encode("utf-8", "replace").decode())
    assert decoded(encode_entry(fields)) == expected


def test_long_values_are_cut_at_a_character() -> None:
    """A value keeps at most 32 KiB, and no half of a character."""
    value = decoded(encode_entry([("MESSAGE", "x" + "é" * MOST_VALUE_BYTES)]))["MESSAGE"][0]
    assert value == "x" + "é" * ((MOST_VALUE_BYTES - 1) // 2)


def test_an_entry_is_bounded_and_cheap_whatever_comes() -> None:
    """Twenty values of 5 MB take no longer than their first 32 KiB, and fit in a datagram."""
    text = "\n" * 5_000_000
    began_s = time.perf_counter()
    entry = encode_entry([("MESSAGE", text)] * 20)
    took_s = time.perf_counter() - began_s
    assert len(entry) <= MOST_ENTRY_BYTES
    # Encoding all of it takes 50 ms here, the first 32 KiB of each 1 ms.
    assert took_s < 0.03


def test_entries_arrive_and_are_waited_for(receiver: JournalReceiver) -> None:
    """The wait ends when the journal has read, and says so when it has not."""
    journal = JournalSocket(str(receiver.path))
    assert journal.is_usable
    assert journal.settle(0.0)
    assert journal.send(encode_entry([("MESSAGE", "one")]))
    assert not journal.settle(0.0)
    assert receiver.take() == [{"MESSAGE": ["one"]}]
    assert journal.settle(0.0)
    journal.close()


def test_a_journal_that_does_not_read_is_not_waited_for(receiver: JournalReceiver) -> None:
    """A full queue refuses the next entry at once, and takes one again when it was read."""
    journal = JournalSocket(str(receiver.path))
    began_s = time.perf_counter()
    sent = 0
    while journal.send(b"MESSAGE=x\n" * 100):
        sent += 1
    assert time.perf_counter() - began_s < 1
    assert journal.is_usable
    assert sent == len(receiver.take()) > 0
    assert journal.send(b"MESSAGE=again\n")
    journal.close()


def test_a_journal_that_starts_anew_is_found_again(tmp_path: Path) -> None:
    """An entry goes to the socket that is there now; without one it is not sent."""
    first = JournalReceiver(tmp_path / "journal")
    journal = JournalSocket(str(first.path))
    first.close()
    assert not journal.send(b"MESSAGE=lost\n")
    assert not journal.is_usable
    second = JournalReceiver(tmp_path / "journal")
    assert journal.send(b"MESSAGE=found\n")
    assert second.take() == [{"MESSAGE": ["found"]}]
    journal.close()
    second.close()


def test_standard_error_is_told_from_the_journal() -> None:
    """The stream that systemd connected is named in a variable; any other standard error is somebody's own."""
    status = os.fstat(2)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        other = os.fstat(ours.fileno())
    assert stderr_is_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    assert not stderr_is_journal({"JOURNAL_STREAM": f"{other.st_dev}:{other.st_ino}"})
    assert not stderr_is_journal({})

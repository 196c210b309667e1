"""Log records as entries of the journal: fields, levels, tracebacks, drops and the way around."""

import io
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.model.journal_events import JournalEvent, JournalField, event_fields
from appliance.system.systemd.journal_handler import JournalHandler, identifier_of
from appliance.wire.journal_socket import JournalSocket
from tests.fakes.journal_receiver import JournalReceiver

UNITS = Path(__file__).parents[4] / "units"
DAEMON = re.compile(r"^ExecStart=\S+ -I -m (appliance\.[a-z]+)$", re.MULTILINE)
IDENTIFIER = re.compile(r"^SyslogIdentifier=(\S+)$", re.MULTILINE)


class World:
    """Logger that writes to a journal, and to a text where there is none."""

    def __init__(self, path: Path) -> None:
        self.receiver = JournalReceiver(path)
        self.stderr = io.StringIO()
        self.handler = JournalHandler(
            JournalSocket(str(path)), logging.StreamHandler(self.stderr), "appliance-test"
        )
        # Not from the registry, whose loggers pass records on to pytest's own handler.
        self.log = logging.Logger("appliance.test")  # noqa: LOG001
        self.log.addHandler(self.handler)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "journal")
    yield world
    world.handler.close()
    if world.receiver.path.exists():
        world.receiver.close()


def test_an_event_has_its_fields(world: World) -> None:
    """Message id, profiles and further fields are beside what every entry has."""
    world.log.warning(
        "operation %d failed",
        7,
        extra=event_fields(
            JournalEvent.OPERATION_FAILED,
            profiles=("a", "b"),
            others=((JournalField.OPERATION, 7),),
        ),
    )
    (entry,) = world.receiver.take()
    assert entry.pop("CODE_LINE")[0].isdigit()
    assert entry == {
        "MESSAGE": ["operation 7 failed"],
        "PRIORITY": ["4"],
        "SYSLOG_FACILITY": ["3"],
        "SYSLOG_IDENTIFIER": ["appliance-test"],
        "MESSAGE_ID": [JournalEvent.OPERATION_FAILED.value],
        "APPLIANCE_EVENT": ["operation-failed"],
        "APPLIANCE_PROFILE": ["a", "b"],
        "APPLIANCE_OPERATION": ["7"],
        "LOGGER": ["appliance.test"],
        "CODE_FUNC": ["test_an_event_has_its_fields"],
    }


def test_a_traceback_is_part_of_its_entry(world: World) -> None:
    """An error with its traceback is one entry, whose priority is that of an error."""
    try:
        os.environ["APPLIANCE_ABSENT"]
    except KeyError:
        world.log.exception("a look failed")
    (entry,) = world.receiver.take()
    assert entry["PRIORITY"] == ["3"]
    assert entry["MESSAGE"][0].startswith("a look failed\nTraceback")
    assert entry["MESSAGE"][0].endswith("KeyError: 'APPLIANCE_ABSENT'")


def test_dropped_entries_are_counted(world: World) -> None:
    """While the journal does not read nothing waits; a later entry has the number of what is missing."""
    total = 3000  # the kernel queues at most net.unix.max_dgram_qlen, 512 under systemd
    for number in range(total):
        world.log.info("entry %d", number)
    arrived = len(world.receiver.take())
    assert 0 < arrived < total
    world.log.info("later")
    world.log.info("last")
    texts = [entry["MESSAGE"][0] for entry in world.receiver.take()]
    lost = f"{total - arrived} log entries were dropped: the journal read too slowly"
    assert texts == ["later", lost, "last"]
    assert world.stderr.getvalue() == ""


def test_without_a_journal_lines_go_to_standard_error(world: World) -> None:
    """A journal that went away takes no line along."""
    world.receiver.close()
    world.log.error("the disk is full")
    assert world.stderr.getvalue() == "the disk is full\n"


def test_a_record_that_cannot_be_formatted_does_not_reach_the_caller(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong format is reported as logging does, and sends no entry."""
    world.log.error("%d", "no number")
    assert world.receiver.take() == []
    assert "--- Logging error ---" in capsys.readouterr().err


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.name)
def test_identifiers_are_those_of_the_units(unit: Path) -> None:
    """An entry has the identifier that a line on standard error would have."""
    text = unit.read_text()
    for module in DAEMON.findall(text):
        assert IDENTIFIER.findall(text) == [identifier_of(f"{module}.__main__")]


def test_basic_configuration_leaves_the_text_alone(world: World) -> None:
    """The daemons configure logging with basicConfig, which would put level and logger before the text."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        root.handlers[:] = []
        logging.basicConfig(level="INFO", handlers=[world.handler])
        logging.getLogger("appliance.other").info("a serves")
    finally:
        root.handlers[:], root.level = before, level
    assert [entry["MESSAGE"] for entry in world.receiver.take()] == [["a serves"]]

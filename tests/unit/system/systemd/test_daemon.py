"""State, sockets and log entries of a daemon, read at the other end of the sockets of systemd and of the journal."""

import io
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.model.journal_events import JournalEvent, JournalField, event_fields
from appliance.system.systemd.daemon import JournalHandler, Notices, Readiness, identifier_of
from appliance.wire.journal_socket import JournalSocket
from tests.fakes.journal_receiver import JournalReceiver
from tests.fakes.notify_socket import NotifySocket


def test_the_supervisor_sends_a_status_only_when_it_changes(
    manager: NotifySocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same status is sent once; a line break in a status adds no line."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    readiness = Readiness()
    readiness.ready()
    for status in ("a serves", "a serves", "b\nserves"):
        readiness.alive(status)
    readiness.stopping()
    manager.wait_for("STOPPING=1")
    assert [message for message in manager.messages if message != "WATCHDOG=1"] == [
        "READY=1",
        "WATCHDOG=1\nSTATUS=a serves",
        "WATCHDOG=1\nSTATUS=b serves",
        "STOPPING=1\nSTATUS=stopping; models keep running",
    ]


def test_a_status_may_be_in_any_script(
    manager: NotifySocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A character beyond Latin-1 arrives in UTF-8, in which systemd reads a status."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    Readiness().tell("größer → 漢")
    assert manager.receive(within_s=5) == "STATUS=größer → 漢"


# sdnotify leaves its socket to the garbage collector there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_manager_that_is_gone_costs_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that is not taken is no error; the gateway says so in its log."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    Readiness().ready()
    Notices().ready("all is well")
    assert "systemd did not take the message READY=1" in caplog.text


def test_a_status_can_leave_the_watchdog_alone(
    manager: NotifySocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The health agent tells its state and feeds the watchdog apart from each other."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    readiness = Readiness()
    for status in ("1 profile", "1 profile", "2 profiles"):
        readiness.tell(status)
    readiness.feed()
    manager.wait_for("WATCHDOG=1")
    assert manager.messages == ["STATUS=1 profile", "STATUS=2 profiles", "WATCHDOG=1"]


def test_nothing_is_sent_and_no_socket_is_left_without_a_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A supervisor that was started by hand works; the leak check of every test counts sockets."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    readiness = Readiness()
    readiness.ready()
    readiness.alive("a serves")


def test_notices_wait_until_this_is_the_main_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process notifies systemd only while it is the main process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear, socket.socket() as listener:
        ear.bind(str(tmp_path / "ear"))
        ear.settimeout(1)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "ear"))
        notices = Notices()
        notices.keep(listener, "x")
        notices.drop("y")
        ear.settimeout(0)
        with pytest.raises(BlockingIOError):
            ear.recv(4096)
        ear.settimeout(1)
        notices.ready("all is well")
        notices.alive("all is well")
        notices.alive("still")
        notices.hand_over(42)
        notices.alive("gone")
        data, descriptors, _, _ = socket.recv_fds(ear, 4096, 1)
        socket.close(descriptors[0])
        assert data == b"FDSTORE=1\nFDNAME=x"
        heard = [ear.recv(4096) for _ in range(5)]
        assert heard == [
            b"FDSTOREREMOVE=1\nFDNAME=y",
            b"READY=1\nSTATUS=all is well",
            b"WATCHDOG=1\nSTATUS=all is well",
            b"WATCHDOG=1\nSTATUS=still",
            b"MAINPID=42\nREADY=1",
        ]
        ear.settimeout(0)
        with pytest.raises(BlockingIOError):
            ear.recv(4096)


UNITS = Path(__file__).parents[4] / "units"
DAEMON = re.compile(r"^ExecStart=\S+ -I -m (appliance\.(?:helpers\.)?[a-z]+)$", re.MULTILINE)
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


def test_objects_of_the_start_are_exempt() -> None:
    """A collection afterwards has only newer objects to look at, and still runs."""
    program = (
        "import gc, appliance.system.systemd.daemon as daemon\n"
        "before = len(gc.get_objects())\n"
        "daemon.freeze_garbage()\n"
        "print(gc.isenabled(), gc.get_freeze_count() > before / 2, len(gc.get_objects()) < before / 2)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True True True\n"

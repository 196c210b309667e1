"""Port of a start: bound by strangers, by earlier runs, and left in TIME_WAIT by engines of three kinds."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from appliance.launch.port import (
    LISTENER_GRACE_S,
    PORT_REUSE,
    PortWatch,
    last_program,
    record_program,
)
from appliance.system.kernel.tcp_listeners import PortSocket, port_sockets_in
from tests.programs import free_port

ADDRESS, PORT = socket.SO_REUSEADDR, socket.SO_REUSEPORT
HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"


@contextmanager
def listening(port: int, option: int = 0) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        if option:
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        yield listener


def left_over(port: int, option: int) -> None:
    """Leave a connection in TIME_WAIT, as an engine that closes first does."""
    with (
        listening(port, option) as listener,
        closing(socket.create_connection(("127.0.0.1", port))) as client,
    ):
        engine_side, _ = listener.accept()
        engine_side.close()
        assert client.recv(1) == b""


@pytest.mark.parametrize(
    ("option", "reuse", "is_free"),
    [
        (0, (), False),
        (0, ("address",), False),
        (0, ("address", "port"), False),
        (ADDRESS, (), False),
        (ADDRESS, ("address",), True),
        (ADDRESS, ("port",), False),
        (ADDRESS, ("address", "port"), True),
        (PORT, (), False),
        (PORT, ("address",), False),
        (PORT, ("address", "port"), True),
    ],
)
def test_a_port_is_free_when_it_can_be_bound_as_the_engine_will(
    option: int, reuse: Sequence[str], *, is_free: bool
) -> None:
    """Connections in TIME_WAIT are in the way unless both engines bind with the same option."""
    port = free_port()
    left_over(port, option)
    obstacle = PortWatch(port, reuse, clock=lambda: 0.0).check()
    assert (obstacle is None) is is_free
    if obstacle is not None:
        _, _, left = obstacle.status.partition(f"waiting for port {port}: free again in ")
        assert 0 < int(left.removesuffix(" s")) <= 60
        assert not obstacle.rival, "a restart by systemd would help"
        assert obstacle.extra_s > 0, "the default deadline is the same minute"


def test_a_process_that_listens_is_named(port: int) -> None:
    """A stranger is refused after a grace, with name, pid and user."""
    with listening(port, ADDRESS):
        obstacle = PortWatch(port, PORT_REUSE, clock=lambda: 0.0).check()
        assert obstacle is not None
        assert (obstacle.rival, obstacle.patience_s) == (True, LISTENER_GRACE_S)
        assert f"port {port} is in use by " in obstacle.explain()
        assert f"(pid {os.getpid()}, " in obstacle.explain()


def test_open_connections_of_an_earlier_run_are_named(port: int) -> None:
    """A worker may have outlived its engine, with the engine's connections."""
    with listening(port) as listener, closing(socket.create_connection(("127.0.0.1", port))):
        worker, _ = listener.accept()
        with worker:
            listener.close()
            obstacle = PortWatch(port, (), clock=lambda: 0.0).check()
            assert obstacle is not None
            assert (
                obstacle.status == f"waiting for port {port}: connections to port {port} are open"
            )
            assert f"(pid {os.getpid()}, " in obstacle.explain()
            assert not obstacle.rival


def test_a_port_that_is_let_go_is_awaited_beyond_the_deadline(port: int) -> None:
    """The last connection leaves the kernel's tables a moment before its port is free."""
    times, looks = iter([59.0, 60.0]), iter([[PortSocket("06", 0.4, 0)], []])
    watch = PortWatch(port, (), clock=lambda: next(times), sockets_on=lambda _: next(looks))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", port))
        for _ in range(2):
            obstacle = watch.check()
            assert obstacle is not None
            assert obstacle.status == f"waiting for port {port}: free again in 0 s"
            assert obstacle.extra_s > 0


def test_the_wait_for_a_port_is_told(port: int) -> None:
    """A socket that is bound and does not listen is in no table; the wait ends with it."""
    times = iter([0.0, 0.0, 0.0, 12.4, 12.4, 13.0])
    watch = PortWatch(port, (), clock=lambda: next(times))
    assert watch.check() is None
    assert watch.change_text() == ""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", port))
        obstacle = watch.check()
        assert obstacle is not None
        assert obstacle.status == f"waiting for port {port}: a process has bound it"
        assert watch.check() is not None
        assert watch.check() is not None
    assert watch.check() is None
    assert watch.change_text() == f"port {port} free after 12.4 s"


def test_the_timer_is_that_of_the_port() -> None:
    """Rows of other ports, remote ends and rows that cannot be read are left out."""
    rows = [
        HEADING,
        "  0: 0100007F:238F 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4711 1",
        "  1: 0100007F:238F 0100007F:AEEC 06 00000000:00000000 03:00001764 00000000    0 0 0 3",
        "  2: 0100007F:AEEC 0100007F:238F 01 00000000:00000000 00:00000000 00000000 1000 0 4712 1",
        "  3: 0100007F:238F 0100007F:AEED 06 zz",
        "  4: 0100007F:238F 0100007F:AEEE 06 00000000:00000000 03:wrong 00000000    0 0 0 3",
    ]
    found = [(one.is_listening, one.is_over, one.inode) for one in port_sockets_in(rows, 0x238F)]
    assert found == [(True, False, 4711), (False, True, 0)]
    (_, waits) = port_sockets_in(rows, 0x238F)
    assert waits.left_s == pytest.approx(0x1764 / os.sysconf("SC_CLK_TCK"))


def test_a_table_without_end_is_read_to_a_bound() -> None:
    """Each row costs little, and no more than a number of them are looked at."""
    row = HEADING

    def endless() -> Iterator[str]:
        while True:
            yield row

    assert list(port_sockets_in(endless(), 9103)) == []


def test_the_program_of_a_port_is_remembered(tmp_path: object) -> None:
    """The last one admitted counts; a folder that cannot be written is no error."""
    folder = f"{tmp_path}/gate"
    assert last_program(folder, 9103) == ""
    record_program(folder, 9103, "/usr/bin/one")
    record_program(folder, 9103, "/usr/bin/two")
    assert last_program(folder, 9103) == "/usr/bin/two"
    assert last_program(folder, 9104) == ""
    record_program("/proc/nowhere", 9103, "/usr/bin/two")


@pytest.fixture
def port() -> int:
    return free_port()

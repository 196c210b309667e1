"""Listening TCP sockets: the kernel's tables of this machine, and tables that are none."""

import os
import random
import socket
import time
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.system.kernel.tcp_listeners import (
    TcpListener,
    listeners_in,
    open_sockets,
    port_holder,
    tcp_listeners,
)
from tests.programs import free_port

# ruff: noqa: S104, S311 - listeners on all addresses are what is looked for


HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
ROW = "   {n}: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1"
ADDRESSES = {
    "0100007F": ("127.0.0.1", True),
    "050A007F": ("127.0.10.5", True),
    "00000000": ("0.0.0.0", False),
    "0500A8C0": ("192.168.0.5", False),
    "00000000000000000000000000000000": ("::", False),
    "00000000000000000000000001000000": ("::1", True),
    "0000000000000000FFFF00000100007F": ("::ffff:127.0.0.1", True),
    "0000000000000000FFFF00000500A8C0": ("::ffff:192.168.0.5", False),
    "000080FE00000000FF005450B6FE1234": ("fe80::5054:ff:3412:feb6", False),
}


def row(local: str = "0100007F:1F46", *, state: str = "0A", inode: int = 4711) -> str:
    return ROW.format(n=0, local=local, state=state, inode=inode)


@pytest.mark.parametrize(("digits", "expected"), ADDRESSES.items())
def test_an_address_is_read_in_the_order_of_the_machine(
    digits: str, expected: tuple[str, bool]
) -> None:
    """Each address is numeric, and one that only this machine reaches is known as such."""
    (found,) = listeners_in([HEADING, row(f"{digits}:1F46")])
    assert (found.address, found.is_loopback) == expected
    assert (found.port, found.uid, found.inode) == (8006, 1000, 4711)


@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1")],
)
def test_a_listener_of_this_process_is_found(family: socket.AddressFamily, address: str) -> None:
    """A socket that listens is in the kernel's table, and open in this process; a bound one is not."""
    with socket.socket(family) as listener, socket.socket(family) as bound:
        listener.bind((address, 0))
        bound.bind((address, 0))
        listener.listen()
        ports = [end.getsockname()[1] for end in (listener, bound)]
        found = [one for one in tcp_listeners() if one.port in ports]
        assert [(one.address, one.port, one.uid) for one in found] == [
            (address, ports[0], os.geteuid())
        ]
        assert found[0].inode in set(open_sockets(os.getpid()))
    assert not [one for one in tcp_listeners() if one.port in ports]


def test_a_table_is_read_as_far_as_its_listeners() -> None:
    """Connections come after all listeners, and are not read: a box may have a million."""
    rows = (row(state="01" if number else "0A") for number in count())
    assert len(list(listeners_in(rows))) == 1


def test_a_process_that_ended_has_no_socket() -> None:
    """Neither a table nor a descriptor of a process that is gone is an error."""
    gone = 4_000_000
    assert list(tcp_listeners(gone)) == []
    assert list(open_sockets(gone)) == []


@given(st.lists(st.text(max_size=300)))
def test_any_text_is_a_table(rows: list[str]) -> None:
    """Rows that are none are left out."""
    assert all(isinstance(one, TcpListener) for one in listeners_in(rows))


@given(st.lists(st.sampled_from(["0:", "0A", "1:2", "::", "0" * 8, "G" * 8, "-1", "0", ":"])))
def test_any_fields_are_a_row(fields: list[str]) -> None:
    """Fields in the wrong place are no listener, and no error."""
    list(listeners_in([" ".join(fields * 3)]))


def test_time_is_linear() -> None:
    """Ten times as many rows of noise take about ten times as long."""
    noise = random.Random(1)
    words = ["0A", "01", ":", "0100007F:1F46", "x" * 30, "٣", ""]

    def rows(number: int) -> Iterator[str]:
        for _ in range(number):
            yield " ".join(["0:", "a", "b", "0A", *noise.choices(words, k=9)])

    def seconds(number: int) -> float:
        began = time.perf_counter()
        list(listeners_in(rows(number)))
        return time.perf_counter() - began

    seconds(1000)
    assert min(seconds(20_000) for _ in range(3)) < 40 * min(seconds(2000) for _ in range(3))


def test_a_process_that_listens_is_named_with_its_pid() -> None:
    """The refusal of a switch names the process, so that somebody can stop it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        holder = port_holder(listener.getsockname()[1])
    assert holder is not None
    assert f"(pid {os.getpid()}, " in holder


def test_a_port_that_nobody_listens_on_has_no_holder() -> None:
    """Neither a free port has one, nor one that is bound alone."""
    assert port_holder(free_port()) is None
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert port_holder(bound.getsockname()[1]) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: what others see of a socket is not shown")
def test_a_process_that_may_not_look_names_the_user() -> None:
    """Of a user with many processes it is not known which one it is."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            os.closerange(listener.fileno(), listener.fileno() + 1)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writer, str(port_holder(port)).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(reader, 4096).decode() == "a process of user root"
        os.close(reader)
        os.close(writer)

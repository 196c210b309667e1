"""Process that listens on a port."""

import os
import socket

import pytest

from appliance.system.kernel.port_holder import port_holder
from tests.programs import free_port


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

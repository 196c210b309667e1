"""Lines of the daemons that their sockets start."""

import pytest

from appliance.model.service_lines import CheckTally, NotifierTally, leaving_line


@pytest.mark.parametrize(
    ("tally", "troubles", "line"),
    [
        (NotifierTally(targets=0), {}, "no targets: sudo appliance target add NAME"),
        (
            NotifierTally(targets=0, fault="targets.toml:3: unknown key"),
            {},
            "no target is known: targets.toml:3: unknown key",
        ),
        (NotifierTally(targets=1), {}, "1 target · 0 sent"),
        (NotifierTally(targets=2, sent=5), {"phone": ""}, "2 targets · 5 sent"),
        (
            NotifierTally(targets=2, sent=5, failed=2),
            {"tablet": "status 401", "phone": "status 500"},
            "2 targets · 5 sent · 2 failed · phone: status 500 · tablet: status 401",
        ),
    ],
)
def test_line_of_the_notifier(tally: NotifierTally, troubles: dict[str, str], line: str) -> None:
    """The line has the messages since the start, and each target whose last one failed."""
    assert tally.line(troubles) == line


def test_messages_are_counted() -> None:
    """Each attempt counts, as sent or as failed."""
    tally = NotifierTally(targets=1)
    for is_sent in (True, False, True):
        tally.count(is_sent=is_sent)
    assert (tally.sent, tally.failed) == (2, 1)


def test_line_of_the_checker() -> None:
    """An address counts by its last outcome, and no address is named."""
    tally = CheckTally()
    tally.count("http://nas.example/SECRET", is_up=False)
    assert tally.line() == "1 check of 1 address · 1 is not up"
    tally.count("http://nas.example/SECRET", is_up=True)
    assert tally.line() == "2 checks of 1 address · all are up"
    for port in (1, 2):
        tally.count(f"http://nas.example:{port}/", is_up=False)
    assert tally.line() == "4 checks of 3 addresses · 2 are not up"


def test_addresses_are_bounded() -> None:
    """Of more addresses than settings may have the first are forgotten."""
    tally = CheckTally()
    for number in range(10_000):
        tally.count(f"http://nas.example/{number}", is_up=number >= 1)
    assert tally.line() == "10000 checks of 256 addresses · all are up"


def test_line_of_a_daemon_that_leaves() -> None:
    """The last line says why there is no process."""
    assert leaving_line(60.0) == "nobody asked for 60 s; its socket starts it again"

"""Names, lists and suggestions as they are written for people."""

from collections.abc import Mapping

import pytest

from appliance.model.status import OperationRow
from appliance.model.wording import closest, joined, no_such_profile, running_sentences
from appliance.wire.typed_json import from_json


@pytest.mark.parametrize(
    ("names", "text"),
    [([], "nothing"), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
)
def test_joined(names: list[str], text: str) -> None:
    """Names are joined as in a sentence."""
    assert joined(names) == text


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("genisis", ["genesis", "aeon"], 'no profile "genisis". Did you mean "genesis"?'),
        ("zzz", ["genesis"], 'no profile "zzz": appliance list --all'),
        ("zzz", [], 'no profile "zzz": none is applied yet (sudo appliance apply)'),
        ("a\n\x1b[2J\ud800", ["z"], r'no profile "a\n\x1b[2J\ud800": appliance list --all'),
        ("n" * 99_999, ["z"], f'no profile "{"n" * 64}…": appliance list --all'),
    ],
)
def test_unknown_profile(name: str, known: list[str], text: str) -> None:
    """A wrong name leads to the likely one, else to the list."""
    assert no_such_profile(name, known) == text


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("nass", ["aeon"], 'no profile or watch "nass". Did you mean "nas"?'),
        ("zzz", [], 'no profile or watch "zzz": appliance list --all'),
    ],
)
def test_unknown_watch(name: str, known: list[str], text: str) -> None:
    """Where watches are meant too, one of them may be the likely one."""
    assert no_such_profile(name, known, watches=["nas"]) == text


@pytest.mark.parametrize(
    ("operation", "sentences"),
    [
        (None, []),
        (
            {
                "kind": "switch",
                "target": ["a"],
                "phase": "load",
                "requested_by": "ana (uid 1000, pid 7)",
            },
            ["switch to a by ana is running (load): appliance wait"],
        ),
        (
            {"kind": "stop", "target": [], "requested_by": "key laptop as x (uid 990, pid 8)"},
            ["stop by key laptop is running (starting): appliance wait"],
        ),
    ],
)
def test_a_running_operation_is_one_sentence(
    operation: Mapping[str, object] | None, sentences: list[str]
) -> None:
    """Kind, target, requester without the process, and phase."""
    running = None if operation is None else from_json(OperationRow, operation)
    assert running_sentences(running) == sentences


def test_nothing_is_close_to_a_stranger() -> None:
    """A suggestion is only made where it is likely."""
    assert closest("qwerty", ["status", "switch"]) is None

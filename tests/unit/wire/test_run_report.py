"""The report that the program of an operator's command leaves for the supervisor."""

import pytest

from appliance.wire.run_report import Report, decoded, encoded


@pytest.mark.parametrize("operation", [12, None])
def test_a_report_survives_its_file(operation: int | None) -> None:
    """A report that one side writes is what the other reads."""
    report = Report(ran=True, text="with status 0", operation=operation, ticket_sha256="ab")
    found = decoded(encoded(report, who="make of user ana", unix_s=1.0))
    assert found is not None
    assert (found.ran, found.text, found.operation, found.ticket_sha256) == (
        True,
        "with status 0",
        operation,
        "ab",
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 9000, '{"ran": true}', b"\xff"])
def test_a_damaged_report_is_none(text: str | bytes) -> None:
    """A file that is cut, or of another kind, says nothing."""
    assert decoded(text) is None


def test_a_report_of_an_older_release_has_no_ticket() -> None:
    """Keys that an older release did not write have their empty values."""
    found = decoded('{"ran": false, "text": "x"}')
    assert found is not None
    assert (found.operation, found.ticket_sha256) == (None, "")

"""Rows on a verification, for the status document and the verb that verifies."""

from collections.abc import Iterator
from typing import Literal

from appliance.model.running_facts import DeclaredFact, ReportedFact
from appliance.status.document import VerificationRow, VerifiedFactRow
from appliance.switch.verification.fact_comparison import Verification


def verification_row(verification: Verification, *, at_unix_s: float) -> VerificationRow:
    """Return the row of a comparison that was made at `at_unix_s`."""
    return VerificationRow(
        at_unix_s=at_unix_s, facts=list(_rows(verification)), faults=list(verification.faults)
    )


def differences(row: VerificationRow | None) -> list[VerifiedFactRow]:
    """Return the facts of a row that differ; none where nothing was compared."""
    return [fact for fact in row["facts"] if fact["state"] == "differs"] if row else []


def _rows(verification: Verification) -> Iterator[VerifiedFactRow]:
    for one in verification.mismatches:
        yield _row(one.declared, "differs", one.reported)
    for one in verification.agreeing:
        yield _row(one.declared, "agrees", one.reported)
    for fact in verification.unknown:
        yield _row(fact, "unknown", None)


def _row(
    declared: DeclaredFact,
    state: Literal["agrees", "differs", "unknown"],
    reported: ReportedFact | None,
) -> VerifiedFactRow:
    return VerifiedFactRow(
        topic=declared.topic.value,
        subject=declared.subject,
        state=state,
        declared=declared.text,
        key=declared.key,
        reported=None if reported is None else reported.text,
        source=None if reported is None else reported.source,
        fails=declared.fails,
    )

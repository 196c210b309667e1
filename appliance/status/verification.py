"""Rows on a verification, for the status document and the verb that verifies, and the sentences on them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from appliance.model.running_facts import DeclaredFact, ReportedFact, Topic
from appliance.model.status import VerificationRow, VerifiedFactRow
from appliance.model.wording import joined
from appliance.switch.verification import Verification


def verification_row(verification: Verification, *, at_unix_s: float) -> VerificationRow:
    """Return the row of a comparison that was made at `at_unix_s`."""
    return VerificationRow(
        at_unix_s=at_unix_s, facts=list(_rows(verification)), faults=list(verification.faults)
    )


def differences(row: VerificationRow | None) -> list[VerifiedFactRow]:
    """Return the facts of a row that differ; none where nothing was compared."""
    return [fact for fact in row.facts if fact.state == "differs"] if row else []


def _rows(verification: Verification) -> Iterator[VerifiedFactRow]:
    for one in verification.mismatches:
        yield _row(one.declared, "differs", one.reported)
    for one in verification.agreeing:
        yield _row(one.declared, "agrees", one.reported)
    for fact in verification.unknown:
        yield _row(fact, "unknown", None)


def _row(
    declared: DeclaredFact,
    state: str,
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


_TITLES: Final[Mapping[str, str]] = {
    Topic.CONTEXT: "context per request",
    Topic.SLOTS: "requests at once",
    Topic.KV: "type of the cache",
    Topic.GPU_LAYERS: "layers on the GPUs",
    Topic.CPU_EXPERTS: "weights on the GPUs",
    Topic.DRAFTS: "speculative decoding",
    Topic.DRAFT_TOKENS: "tokens in a draft",
    Topic.DRAFT_MODEL: "draft model",
    Topic.MODEL: "model",
    Topic.QUANTIZATION: "quantization",
    Topic.CHAT_TEMPLATE: "chat template",
    Topic.THINKING: "thinking",
    Topic.FLASH_ATTENTION: "attention",
    Topic.ADAPTERS: "adapters",
    Topic.PATCH: "patch",
    Topic.BUILD: "build",
}


def title(fact: VerifiedFactRow) -> str:
    """Return what a fact is about: ``patch P4``."""
    return f"{_TITLES.get(fact.topic, fact.topic)} {fact.subject}".strip()


def phase_text(name: str, row: VerificationRow) -> str:
    """Return the text of the phase that verifies profile `name`."""
    facts = row.facts
    agreeing = sum(fact.state == "agrees" for fact in facts)
    unknown = [title(fact) for fact in facts if fact.state == "unknown"]
    differing = differences(row)
    if not agreeing and not differing:
        told = "the engine reports nothing about itself" if facts else "nothing to compare"
        return f"{name}: {'; '.join([told, *row.faults])}"
    parts = [
        f"{agreeing} facts agree" if agreeing != 1 else "1 fact agrees",
        *map(_difference, differing),
        *([f"not reported: {joined(unknown)}"] if unknown else ()),
    ]
    return f"{name}: {'; '.join(parts)}"


def failure_text(name: str, row: VerificationRow) -> str:
    """Return why a profile that answers must not be committed; empty: nothing is known against it."""
    failing = [fact for fact in differences(row) if fact.fails]
    return f"{name} {_otherwise(failing)}" if failing else ""


def difference_note(row: VerificationRow | None) -> str:
    """Return the differences as a note in the status; empty: there are none."""
    differing = differences(row)
    return _otherwise(differing) if differing else ""


def _otherwise(facts: Sequence[VerifiedFactRow]) -> str:
    return f"runs otherwise than declared: {'; '.join(map(_difference, facts))}"


def _difference(fact: VerifiedFactRow) -> str:
    """Return both values with their sources."""
    return (
        f"{title(fact)} {fact.declared} declared ({fact.key}),"
        f" {fact.reported} reported ({fact.source})"
    )

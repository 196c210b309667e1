"""Comments of a proposed profile: why it is so, what it needs, and what a larger context would cost."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from appliance.profiles.proposing.fit_judge import FitJudge, Judged, place_lines, shortfall_text
from appliance.profiles.proposing.model_facts import ModelFacts, ModelTask
from appliance.profiles.proposing.proposal_search import Proposal

_INDENT = "  "


def fit_lines(judged: Judged, judge: FitJudge) -> Iterator[str]:
    """Yield what a profile needs in each place, and whether that fits the box."""
    if judged.row is None:
        yield f"Its memory is not known: {judged.applied.estimate_problem}"
        return
    yield (
        "It fits this box:"
        if judged.fits
        else f"It does not fit this box: {shortfall_text(judged)}:"
    )
    for line in place_lines(judged, judge.box):
        yield f"{_INDENT}{line}"


def proposal_lines(proposal: Proposal, judged: Judged, judge: FitJudge) -> Iterator[str]:
    """Yield the comments above a proposed profile.

    Args:
        proposal: The proposal.
        judged: The profile as it is written, which may have further settings of a person.
        judge: Judges the next larger context.
    """
    choice, facts = proposal.subject.choice, proposal.subject.facts
    yield f"Proposed by appliance profile new: {choice.engine}, since the model is {choice.why}."
    yield f"The model: {_described(facts)}."
    yield from fit_lines(judged, judge)
    yield from _larger_lines(judged, judge, facts.trained_tokens)
    yield from judge.box.notes
    if judged.applied.estimate is not None:
        yield f"Estimated from the model's header: {'; '.join(judged.applied.estimate.notes)}."
    if facts.drafts and judged.profile.speculative is None:
        yield (
            'Its file has layers that draft: speculative = { method = "mtp", tokens = 3 } may make it faster.'
        )


def _described(facts: ModelFacts) -> str:
    words = [
        f"architecture {facts.architecture}" if facts.architecture else "no architecture named"
    ]
    words.append(f"{facts.blocks} layers")
    if facts.experts:
        words.append(f"experts in {len(facts.experts)}")
    if facts.trained_tokens:
        words.append(f"made for {facts.trained_tokens:,} tokens")
    if facts.task is not ModelTask.GENERATE:
        words.append("for embeddings" if facts.task is ModelTask.EMBED else "for ranking")
    return ", ".join(words)


def _larger_lines(judged: Judged, judge: FitJudge, trained: int | None) -> Iterator[str]:
    """Yield what the next larger context would need; nothing: there is none."""
    tokens = judged.profile.ctx
    if tokens is None or trained is None or tokens >= trained:
        return
    larger = min(trained, 2 * tokens)
    other = judge.judged(replace(judged.profile, ctx=larger))
    if other.row is None:
        return
    verdict = "would fit" if other.fits else "would not fit as it is"
    yield f"With ctx = {larger} it {verdict}:"
    for line in place_lines(other, judge.box):
        yield f"{_INDENT}{line}"


def settings_text(proposal: Proposal) -> str:
    """Return what distinguishes a plan, as a profile has it: ``gpus = [0], ctx = 32768, kv = "f16"``."""
    found = []
    for key in proposal.keys:
        if key.key in _DISTINGUISHING:
            value = f'"{key.value}"' if isinstance(key.value, str) else key.value
            found.append(f"{key.key} = {value}")
    return ", ".join(found)


_DISTINGUISHING: Final = frozenset(
    {"gpus", "ctx", "parallel", "kv", "gpu_layers", "n_cpu_moe", "cpu_experts", "tensor_parallel"}
)
"""Keys that tell plans of one model apart."""

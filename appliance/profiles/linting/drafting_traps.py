"""Traps of speculative decoding by a model's own layers (MTP), whatever the engine."""

from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import LlamaCppLoading, PytorchLoading
from appliance.model.trap_names import TrapName
from appliance.profiles.linting.trap import LintFacts, Trap
from appliance.profiles.linting.trap_sources import FIELD

_MOST_TOKENS: Final = 3


def _own_tokens(facts: LintFacts) -> int:
    """Return the tokens that the model's own layers draft in each step; 0: they draft none."""
    if facts.profile.speculative is None:
        return 0
    match ENGINES[facts.profile.engine].memory(facts.profile).loading:
        case LlamaCppLoading(draft=draft) if draft is not None and draft.own_layers:
            return draft.tokens if draft.model is None else 0
        case PytorchLoading(drafts=tokens):
            return tokens
        case _:
            return 0


def _too_long(facts: LintFacts) -> str | None:
    tokens = _own_tokens(facts)
    return f"speculative.tokens is {tokens}" if tokens > _MOST_TOKENS else None


def _without_weights(facts: LintFacts) -> str | None:
    lacks = facts.traits is not None and facts.traits.drafts is False
    return f"{facts.profile.model} has none" if lacks and _own_tokens(facts) else None


TRAPS: Final = (
    Trap(
        name=TrapName.MTP_TOO_LONG,
        statement="a model's own layers draft few tokens well: four and more cost speed, and time out on some builds",
        keys=("speculative.tokens",),
        advice="set 3, and measure 2",
        source=f"{FIELD}: 3 best, 2 costs 4.3 tokens a second, 4 costs 6; 4 and 5 time out with NVFP4",
        checked="2026-11-25",
        finds=_too_long,
    ),
    Trap(
        name=TrapName.NO_MTP_WEIGHTS,
        statement="the model's own layers are to draft, and its files have none: nothing is drafted, or it does not start",
        keys=("speculative", "model"),
        advice="use a conversion that kept the MTP weights, or remove speculative",
        source=f"{FIELD}: 17.9 tokens a second instead of 80",
        checked="2026-11-25",
        finds=_without_weights,
    ),
)

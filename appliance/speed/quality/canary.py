"""Canary: a request of which the answer's form, or a part of it, is known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.probing import Probing
from appliance.model.profile import Applied, WarmUp
from appliance.model.text_request import requested_name
from appliance.speed.quality.expectation import Expectation

PATH: Final = "/v1/chat/completions"
OWN: Final = "own:"
"""Beginning of the names of the operator's canaries, each a group of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """Canary of one profile."""

    name: str
    group: str
    """Canaries whose pass rate is tracked together."""
    body: Mapping[str, object]
    """Request without the parameters that `canary_body` adds."""
    expectation: Expectation
    streamed: bool = False


def canary_body(applied: Applied, canary: Canary) -> Mapping[str, object]:
    """Return the body of a canary's request; values of the canary's own go first.

    Thinking is off as in a probe: how a model thinks is no matter of form, and takes tokens.
    """
    engine = ENGINES.get(applied.engine)
    probing = Probing() if engine is None else engine.probing
    return {
        "temperature": 0,
        "max_tokens": 256,
        **probing.chat_parameters,
        **canary.body,
        "model": requested_name(applied),
        "stream": canary.streamed,
    }


def generates_text(applied: Applied) -> bool:
    """Tell whether the profile can have canaries at all."""
    return applied.warm_up in {WarmUp.CHAT, WarmUp.COMPLETION}

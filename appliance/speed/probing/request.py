"""Request of a probe: path and body, as the engine of the profile wants them."""

from collections.abc import Mapping
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.probing import Probing
from appliance.model.profile import Applied, WarmUp
from appliance.model.text_request import requested_name, text_request

_FIXED: Final[Mapping[str, object]] = {
    "temperature": 0,
    "seed": 1,
    "stream": True,
    "stream_options": {"include_usage": True},
}


_COMPLETIONS: Final = "/v1/completions"


def probe_request(
    applied: Applied, prompt: str, *, output_tokens: int, salt: str, continues: bool = False
) -> tuple[str, Mapping[str, object]] | None:
    """Return path and body of a probe; None: the profile generates no text.

    An engine that takes pieces gets the text itself, others what a chat model's template makes of it.

    Args:
        applied: The profile.
        prompt: Text that begins with `salt`.
        output_tokens: Number of tokens that the engine must generate.
        salt: Letters and digits that no other probe has.
        continues: Whether the prompt goes on where that of the request before ended
            (`speed.probing.pieces`); the engine must take pieces.
    """
    request = text_request(applied, prompt)
    if request is None:
        return None
    path, body = request
    probing = probing_of(applied)
    chat = probing.chat_parameters if applied.warm_up is WarmUp.CHAT else {}
    if probing.piece_parameters is not None:
        # A chat template would write an end after each piece, which is evaluated for nothing.
        path, body, chat = _COMPLETIONS, {"model": requested_name(applied), "prompt": prompt}, {}
    parameters = dict(probing.parameters(output_tokens, salt))
    if continues:
        parameters |= probing.piece_parameters or {}
    return path, {**body, **_FIXED, **parameters, **chat}


def probing_of(applied: Applied) -> Probing:
    """Return the engine's part in probes of a profile; that of any engine for an unknown one."""
    engine = ENGINES.get(applied.engine)
    return Probing() if engine is None else engine.probing

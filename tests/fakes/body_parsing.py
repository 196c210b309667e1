"""Parsing and changing of request bodies in one call, as tables of cases want it."""

from collections.abc import Mapping, Sequence

from appliance.routing.form_body import parse_form
from appliance.routing.json_body import JsonBody, Pieces, compile_changes, parse_json_in_steps
from appliance.routing.json_scanner import run_steps


def parse_json(body: bytes) -> JsonBody:
    """Parse a body of any length; raises `BodyError`."""
    return run_steps(parse_json_in_steps(body))


def change_json(
    body: bytes, *, model: str | None, set_: Mapping[str, object], strip: Sequence[str]
) -> bytes:
    """Return a JSON body with changes; raises `BodyError`."""
    return _joined(parse_json(body).apply(compile_changes(model=model, set_=set_, strip=strip)))


def change_form(
    content_type: str,
    body: bytes,
    *,
    model: str | None,
    set_: Mapping[str, object],
    strip: Sequence[str],
) -> bytes:
    """Return a form with changes; raises `BodyError`."""
    changes = compile_changes(model=model, set_=set_, strip=strip)
    return _joined(parse_form(content_type, body).apply(changes))


def _joined(body: bytes | Pieces) -> bytes:
    return body if isinstance(body, bytes) else bytes(body)

"""Refusals of the gateway, and the table of them that clients' authors read."""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path

from appliance.model.gateway import Refusal
from appliance.routing import refusals

TABLE = Path(__file__).parents[3] / "docs/reference/client-api.md"
ROW = re.compile(r"^\| (\d{3}) \| `(\w+)` \| (?:(\d+) s|(varies))? ?\|", re.MULTILINE)
SAMPLES: dict[object, object] = {
    str: "genesis",
    str | None: None,
    int: 7,
    bool: True,
    Sequence[str]: ("genesis", "aeon"),
}
"""An argument of each type that a refusal is made with."""


def made() -> list[Refusal]:
    """Return every refusal: the constants, and what each function returns."""
    found: list[Refusal] = []
    for name, member in vars(refusals).items():
        if isinstance(member, Refusal):
            found.append(member)
        elif inspect.isfunction(member) and member.__module__ == refusals.__name__:
            parameters = inspect.signature(member).parameters.values()
            arguments = {one.name: SAMPLES[one.annotation] for one in parameters}
            flags = [n for n, value in arguments.items() if value is True]
            for flag in (True, False) if flags else (True,):
                one = member(**{**arguments, **dict.fromkeys(flags, flag)})
                assert isinstance(one, Refusal), name
                found.append(one)
    return found


def test_the_table_has_every_refusal() -> None:
    """Status, code and time of each refusal are in the reference, and nothing else is."""
    told = {
        (int(s), code, after or varies) for s, code, after, varies in ROW.findall(TABLE.read_text())
    }
    real = {
        (
            one.status,
            one.code,
            "varies" if one.code == "switch_failed" else str(one.retry_after_s or ""),
        )
        for one in made()
        # It has the engine's own status, and its own sentence below the table.
        if one.code != "engine_error"
    }
    assert told == real


def test_a_refusal_that_nothing_ends_has_no_time() -> None:
    """`Retry-After` goes with 503 alone: clients repeat what has one."""
    assert {one.status for one in made() if one.retry_after_s is not None} == {503}


def test_a_refusal_for_an_operator_names_a_command() -> None:
    """A state that a person has to end is told with the command that ends it, or that says when it ends."""
    codes = {
        "model_failed",
        "model_retired",
        "model_not_active",
        "box_held",
        "box_lent",
        "no_model",
    }
    found = [one for one in made() if one.code in codes]
    assert {one.code for one in found} == codes
    assert all(re.search(r"appliance (status|logs|switch|mark)", one.message) for one in found)


def test_each_refusal_says_what_to_do() -> None:
    """People see these sentences in their own clients; those that state a rule of HTTP are for authors of clients."""
    rules = {
        "bad_request",
        "compressed_body",
        "engine_error",
        "expectation_failed",
        "method_not_implemented",
        "unsupported_charset",
    }
    to_do = re.compile(
        r"appliance [a-z]+|ask (again|at)|send |lists|listed|/v1/models|there are:|close "
    )
    silent = {
        one.message for one in made() if one.code not in rules and not to_do.search(one.message)
    }
    assert silent == {refusals.OTHER_HOST_IN_TARGET.message}

"""Tokens of buttons: bound to one action on one alert, and known by their digest alone."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from appliance.alerts.action_tokens import (
    MOST_TOKEN_CHARACTERS,
    SECRET_BYTES,
    TOKEN_S,
    ButtonAction,
    issue_token,
    present_token,
)

NOW = 1.8e9
SECRET = bytes(range(SECRET_BYTES))

secrets = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)


def test_a_token_is_presented_as_it_was_issued() -> None:
    """Alert, episode, action and digest come out of the text; the secret is in the text alone."""
    text, kept = issue_token("A17", 3, ButtonAction.ACK, SECRET, NOW)
    found = present_token(text)
    assert found is not None
    assert (found.alert, found.episode, found.action) == ("A17", 3, ButtonAction.ACK)
    assert found.digest == kept.digest
    assert (kept.alert, kept.action, kept.expires_unix_s) == (
        "A17",
        ButtonAction.ACK,
        NOW + TOKEN_S,
    )
    assert text.rpartition(".")[2] not in repr(kept)
    assert len(text) <= MOST_TOKEN_CHARACTERS


def test_a_secret_has_128_bits() -> None:
    """A shorter one is a mistake of the caller."""
    assert SECRET_BYTES * 8 == 128
    with pytest.raises(ValueError, match="16 bytes"):
        issue_token("A17", 3, ButtonAction.ACK, SECRET[1:], NOW)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A17.3.ack",
        "A17.3.ack.x.y",
        "A17.3.retire.x",
        "A17.x.ack.x",
        "A17.².ack.x",
        "A17.3.ack.ä",
        f"A17.3.ack.{'x' * MOST_TOKEN_CHARACTERS}",
    ],
)
def test_other_texts_are_no_tokens(text: str) -> None:
    """A text of another form is refused before anything is looked up."""
    assert present_token(text) is None


@given(data=st.data(), secret=secrets)
def test_an_altered_token_has_another_digest(data: st.DataObject, secret: bytes) -> None:
    """Whichever character is changed, added or removed, no kept digest is found."""
    action = data.draw(st.sampled_from(ButtonAction))
    text, kept = issue_token("A17", 3, action, secret, NOW)
    at = data.draw(st.integers(0, len(text) - 1))
    cut = data.draw(st.integers(0, 1))
    more = data.draw(st.text(st.characters(codec="ascii"), max_size=2))
    altered = text[:at] + more + text[at + cut :]
    assume(altered != text)
    found = present_token(altered)
    assert found is None or found.digest != kept.digest


@given(secrets, secrets)
def test_tokens_of_another_alert_action_or_secret_are_others(first: bytes, second: bytes) -> None:
    """No two tokens have a digest in common, unless everything about them is the same."""
    issued = {
        issue_token(alert, episode, action, secret, NOW)[1].digest
        for alert in ("A1", "A17")
        for episode in (1, 17)
        for action in ButtonAction
        for secret in {first, second}
    }
    assert len(issued) == 2 * 2 * 2 * len({first, second})

"""Request for text, as a profile's kind of model takes it."""

from dataclasses import replace

import pytest

from appliance.model.profile import WarmUp, requested_name, text_request
from tests.fakes.profiles import applied


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        (
            WarmUp.CHAT,
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "Why?"}]},
        ),
        (WarmUp.COMPLETION, "/v1/completions", {"prompt": "Why?"}),
    ],
)
def test_a_request_for_text_has_the_form_of_its_path(
    kind: WarmUp, path: str, body: dict[str, object]
) -> None:
    """A chat model gets a message, another a prompt, both under a served name."""
    profile = replace(applied("alpha"), served=("a*", "b"), warm_up=kind)
    assert text_request(profile, "Why?") == (path, {"model": "b", **body})


@pytest.mark.parametrize("kind", [WarmUp.EMBEDDING, WarmUp.NONE])
def test_no_text_is_requested_of_a_model_without_text(kind: WarmUp) -> None:
    """Embeddings are no text, and a profile without warm-up promises none."""
    assert text_request(replace(applied("alpha"), warm_up=kind), "Why?") is None


def test_a_profile_with_patterns_alone_is_requested_by_its_name() -> None:
    """No client's name is known where all served names are patterns."""
    assert requested_name(replace(applied("alpha"), served=("a*",))) == "alpha"

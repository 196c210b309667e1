"""The request of a canary."""

from dataclasses import replace

from appliance.model.profile import WarmUp
from appliance.speed.quality.canary import Canary, canary_body, generates_text
from appliance.speed.quality.expectation import Expectation
from tests.fakes.profiles import applied

GENESIS = applied("genesis")

CANARY = Canary(
    name="a", group="a", body={"messages": [], "max_tokens": 9}, expectation=Expectation()
)


def test_body() -> None:
    """A canary asks the profile by a name it serves, without thinking, and its own values go first."""
    body = canary_body(replace(GENESIS, engine="vllm", served=("gen*", "big")), CANARY)
    assert body == {
        "model": "big",
        "messages": [],
        "max_tokens": 9,
        "temperature": 0,
        "stream": False,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_unknown_engine() -> None:
    """A profile of an engine that this release does not know is asked like any other."""
    body = canary_body(replace(GENESIS, engine="other"), replace(CANARY, streamed=True))
    assert body["stream"] is True
    assert body["temperature"] == 0


def test_generates_text() -> None:
    """Profiles that embed or classify have no canaries."""
    found = {kind for kind in WarmUp if generates_text(replace(GENESIS, warm_up=kind))}
    assert found == {WarmUp.CHAT, WarmUp.COMPLETION}

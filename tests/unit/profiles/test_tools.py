"""Promise of tool calls in a compiled profile."""

import pytest

from appliance.engines import ENGINES
from appliance.engines.shared.engine import InvocationContext
from appliance.profiles.compilation import ProfileSource, compile_applied
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL


@pytest.mark.parametrize(
    ("engine", "more", "promised"),
    [
        ("vllm", "", False),
        ("vllm", 'tool_parser = "hermes"\n', True),
        ("vllm", 'tool_parser = "hermes"\ntools = false\n', False),
        ("sglang", 'tool_parser = "qwen"\n', True),
        ("sglang", "", False),
        ("llama-server", "", True),
        ("llama-server", "tools = false\n", False),
        ("xllamacpp", "", False),
        ("command", "", False),
        ("command", "tools = true\n", True),
    ],
)
def test_promise(engine: str, more: str, *, promised: bool) -> None:
    """A profile's own word goes first, then that of its engine and options."""
    profile = parse_profile("p", (more + MINIMAL[engine]).encode())
    source = ProfileSource(path="/etc/appliance/profiles/p.toml", sha256="0" * 64)
    invocation = ENGINES[engine].invocation(profile, InvocationContext())
    assert compile_applied(profile, source, invocation, "/hf").tools is promised

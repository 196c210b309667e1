"""The options we write for llama-server exist in a llama.cpp of today."""

import importlib.util
import mmap
import re
from pathlib import Path

import pytest

from appliance.engines.llama_server import ENGINE, RULES
from appliance.model.running_facts import Topic
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL
from tests.pins.pin_files import load

OLD = {"--direct-io", "--mlock", "--mmap", "--no-direct-io", "--no-mmap"}
"""Only builds before ``--load-mode`` know these."""


def _library() -> Path | None:
    spec = importlib.util.find_spec("xllamacpp")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        return max(Path(folder).glob("*.so"), key=lambda f: f.stat().st_size, default=None)
    return None


def _unknown(options: set[str]) -> set[str]:
    """Options that the argument parser inside the wheel does not have as a word."""
    library = _library()
    if library is None:
        pytest.skip("no xllamacpp here: that llama.cpp knows our options is not shown")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return {o for o in options if text.find(b"\0" + o.encode() + b"\0") < 0}


def _pinned() -> str:
    return "\n".join(load("apply").values())


def test_what_we_write_is_known() -> None:
    """Every long option of a pinned llama-server launch is in llama.cpp's own parser."""
    starts = re.findall(r"^ExecStart=.* -- (\S*llama-server .*)$", _pinned(), re.MULTILINE)
    written = {o for start in starts for o in re.findall(r"(?<= )--[a-z-]+(?= |$)", start)}
    assert len(written) > 30
    assert not _unknown(written - OLD)


def test_what_we_refuse_is_known() -> None:
    """A refusal is not void because an option was given another name since."""
    options = {o for o in (*RULES.refused, *RULES.keys) if o.startswith("--")} - OLD
    assert not _unknown(options)


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ("", "all"),
        ("gpus = []\n", "0"),
        ('[llama-server]\ngpu_layers = "all"\n', "all"),
        ("[llama-server]\ngpu_layers = 9\n", "9"),
    ],
)
def test_layers_are_declared(keys: str, layers: str) -> None:
    """The layers on the GPUs are those of the key, and all where none is set."""
    profile = parse_profile("x", (MINIMAL["llama-server"] + keys).encode())
    facts = {fact.topic: fact.text for fact in ENGINE.declared(profile)}
    assert facts[Topic.GPU_LAYERS] == layers

"""gateway.json: what was compiled for the gateway comes back as it was."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.errors import StoreError
from appliance.model.gateway import Configuration, Limits
from appliance.system.applied.documents import copy_of
from appliance.system.applied.gateway_file import (
    GATEWAY_FILE,
    DamageWatch,
    decode,
    encode,
    recover_configuration,
)

TEXTS = st.lists(st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)).map(tuple)
SECONDS = st.floats(0, 1e6, allow_nan=False)
CONFIGURATION = st.builds(
    Configuration,
    port=st.integers(1, 65535),
    addresses=TEXTS,
    interfaces=TEXTS,
    tls=st.booleans(),
    limits=st.builds(Limits, body_bytes=st.integers(0, 1 << 40), idle_s=SECONDS),
    drain_s=SECONDS,
    allow_paths=TEXTS,
    names=TEXTS,
    origins=TEXTS,
)


@given(CONFIGURATION)
def test_it_comes_back_as_it_was(configuration: Configuration) -> None:
    """Encoding and decoding are inverse."""
    assert decode(encode(configuration, "1")) == configuration


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    """A gateway that was installed and never configured listens on loopback."""
    assert recover_configuration(tmp_path).content == Configuration()
    assert Configuration().beyond_loopback() == ()


@pytest.mark.parametrize("text", ['{"format":1}', '{"format":1,"limits":{},"later":true}'])
def test_what_is_missing_has_its_default_and_what_is_new_is_ignored(text: str) -> None:
    """A file of another release of the same format can be read."""
    assert decode(text) == Configuration()


def test_whole_seconds_are_seconds() -> None:
    """JSON makes no difference between 10 and 10.0."""
    assert decode('{"format":1,"drain_s":10,"limits":{"wait_s":3}}') == Configuration(
        drain_s=10.0, limits=Limits(wait_s=3.0)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format":2,"version":"9"}',
        '{"format":1,"port":"80"}',
        '{"format":1,"port":true}',
        '{"format":1,"addresses":"127.0.0.1"}',
        '{"format":1,"limits":{"queue":1.5}}',
        "[" * 9999,
    ],
)
def test_damage_is_said_with_what_to_do(tmp_path: Path, text: str) -> None:
    """A damaged file is not guessed at: apply writes the file again."""
    (tmp_path / GATEWAY_FILE).write_text(text)
    with pytest.raises(StoreError, match="sudo appliance apply"):
        recover_configuration(tmp_path)


def test_what_other_machines_reach() -> None:
    """Interfaces, and every address but those of this machine."""
    configuration = Configuration(
        addresses=("127.0.0.1", "::1", "127.0.0.2", "10.10.10.1", "fd00::1"),
        interfaces=("tailscale0",),
    )
    assert configuration.beyond_loopback() == ("10.10.10.1", "fd00::1", "tailscale0")


def test_the_last_good_configuration_is_used_and_said_so(tmp_path: Path) -> None:
    """A gateway that asks for keys, or listens elsewhere, does so also from the copy."""
    configured = Configuration(port=9999, keys_always=True)
    path = tmp_path / GATEWAY_FILE
    path.write_text(encode(configured, "1"))
    copy_of(path).write_text(encode(configured, "1"))
    watch = DamageWatch(tmp_path)
    assert watch.damage() is None
    path.write_text("{")
    assert recover_configuration(tmp_path).content == configured
    assert "sudo appliance apply; its copy is used" in str(watch.damage())
    copy_of(path).write_text("{")
    assert str(watch.damage()).endswith("sudo appliance apply")

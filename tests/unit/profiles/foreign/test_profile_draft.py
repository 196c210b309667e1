"""Warnings of an import about the server that it was made of."""

import pytest

from appliance.profiles.foreign.profile_draft import (
    DraftKey,
    OldServer,
    ProfileDraft,
    old_server_warnings,
    port_of,
    program_of,
)

DRAFT = ProfileDraft(
    name="m",
    origin="vllm.service",
    keys=(
        DraftKey(table="", key="binary", value="/opt/vllm/bin/vllm"),
        DraftKey(table="", key="port", value=8000),
    ),
)
COMMAND = ProfileDraft(
    name="m", origin="a", keys=(DraftKey(table="command", key="argv", value=["/opt/x", "{port}"]),)
)


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (OldServer(), ""),
        (
            OldServer(
                unit="vllm.service", is_active=True, is_enabled=True, port_holder="vllm (pid 7)"
            ),
            (
                "vllm.service still runs, and holds its port and its memory, also after a boot:"
                " sudo systemctl disable --now vllm.service, or name it in foreign_units of"
                " /etc/appliance/appliance.toml"
            ),
        ),
        (
            OldServer(unit="vllm.service", is_enabled=True),
            (
                "vllm.service still is started by a boot: sudo systemctl disable --now vllm.service,"
                " or name it in foreign_units of /etc/appliance/appliance.toml"
            ),
        ),
        (
            OldServer(port_holder="python3 (pid 7, user ana)"),
            "port 8000 is in use by python3 (pid 7, user ana): stop it before the switch",
        ),
        (
            OldServer(has_program=False),
            "its program /opt/vllm/bin/vllm is not on this machine: install it, or change binary",
        ),
    ],
)
def test_an_import_tells_what_is_in_the_way_of_its_profile(old: OldServer, expected: str) -> None:
    """A unit that still runs, a port that is taken and a program that is missing are told at once."""
    assert " | ".join(old_server_warnings(DRAFT, old)) == expected


def test_program_and_port_are_those_of_the_draft() -> None:
    """A command has its program in argv; a name without a path is found in PATH, or not."""
    assert (program_of(DRAFT), port_of(DRAFT)) == ("/opt/vllm/bin/vllm", 8000)
    assert (program_of(COMMAND), port_of(COMMAND)) == ("/opt/x", None)
    plain = ProfileDraft(
        name="m", origin="a", keys=(DraftKey(table="", key="binary", value="vllm"),)
    )
    assert program_of(plain) == ""

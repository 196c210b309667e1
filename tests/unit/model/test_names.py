"""Names and imports of the launch programs."""

import sys

import pytest

from appliance.model import names
from appliance.model.claims import ALL_GPUS, CPU
from appliance.switch.units.sandbox import own_user
from tests.programs import ROOT, run


@pytest.mark.parametrize("text", ["a", "a" * 48, "9", "a_-.", "a."])
def test_names_of_profiles(text: str) -> None:
    """Up to 48 lower-case letters, digits, dots, dashes and underscores, from a letter or digit on."""
    assert names.is_profile_name(text)


@pytest.mark.parametrize(
    "text", ["", "a" * 49, "a\n", ".a", "A", "a/b", "a b", "ä", "٣", "%i", "a@b"]
)
def test_no_names_of_profiles(text: str) -> None:
    """A name that a path or a unit name would read as more than a name is refused."""
    assert not names.is_profile_name(text)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("a" * 48, True),
        ("-1.x_", True),
        ("", False),
        ("a" * 49, False),
        ("A", False),
        ("a/b", False),
    ],
)
def test_ids_of_requests(text: str, is_one: bool) -> None:  # noqa: FBT001
    """Ids are as the gateway makes them: nothing that a path or a page would read as more."""
    assert names.is_request_id(text) is is_one


@pytest.mark.parametrize(
    ("user", "uid", "group", "service", "engine"),
    [
        ("ana", 1000, "ana", False, False),
        ("root", 0, "root", False, False),
        ("applianceana", 1001, "users", False, False),
        ("appliance", 990, "appliance", True, False),
        (names.GATEWAY_USER, 991, "appliance-gateway", True, False),
        ("appliance-health", 992, "nogroup", True, False),
        ("appliance-backend", 993, "appliance-backend", True, True),
        ("ana", 1000, "appliance-backend", True, True),
        (own_user("smol"), 61184, "appliance-backend", True, True),
        ("65519", 65519, "anything", True, True),
        ("nobody", 65534, "nogroup", False, False),
    ],
)
def test_services_are_no_people(
    user: str,
    uid: int,
    group: str,
    service: bool,  # noqa: FBT001
    engine: bool,  # noqa: FBT001
) -> None:
    """Daemons by their name, those to come too; engines by their group, or systemd's range."""
    assert names.is_service(user, uid, group) is service
    assert names.is_engine(uid, group) is engine


@pytest.mark.parametrize("text", [ALL_GPUS, CPU, "gpu-0", "gpu-15"])
def test_devices_are_leases(text: str) -> None:
    """Every device of a claim can be leased."""
    assert names.is_lease_name(text)


@pytest.mark.parametrize("text", ["", "gpu", "gpu-", "gpu-x", "gpu-٣", "../cpu", "cpu/", "CPU"])
def test_nothing_else_is_a_lease(text: str) -> None:
    """No other text becomes part of a path."""
    assert not names.is_lease_name(text)


_LIST_MODULES = (
    "import sys; before = set(sys.modules); sys.path.insert(0, sys.argv[1]);"
    " name = sys.argv[2]; __import__(name); print(*sorted(set(sys.modules) - before))"
)
_HEAVY = frozenset(
    {
        "argparse",
        "asyncio",
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
        "json",
        "pathlib",
        "re",
        "socket",
        "subprocess",
        "typing",
    }
)


_SHARED = frozenset(
    {
        "system",
        "system.files",
        "system.kernel",
        "model",
        "model.json_reader",
        "model.names",
        "model.paths",
        "model.plain_text",
        "model.proxies",
        "switch",
        "switch.memory",
        "wire",
        "wire.gate_verdict",
    }
)
"""Modules of other rooms that these programs import."""


@pytest.mark.parametrize("module", ["gate", "backend", "boot"])
def test_what_runs_before_a_model_imports_little(module: str) -> None:
    """Gate, wrapper and boot import the standard library, none of its heavy parts, and little else."""
    argv = [sys.executable, "-IS", "-c", _LIST_MODULES, str(ROOT), f"appliance.launch.{module}"]
    result = run(argv)
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.split())
    roots = {name.partition(".")[0] for name in loaded}
    assert roots <= sys.stdlib_module_names | {"appliance"}
    rooms = {".".join(name.split(".")[1:3]) for name in loaded if name.startswith("appliance.")}
    assert {room for room in rooms if not room.startswith("launch")} <= _SHARED
    assert not roots & _HEAVY


@pytest.mark.parametrize(
    ("unit", "profile"),
    [
        (names.build_unit_of("smol"), "smol"),
        (names.unit_of("smol"), None),
        ("appliance-build-smol.socket", None),
        ("appliance-build-A.service", None),
    ],
)
def test_units_that_ask_for_a_build(unit: str, profile: str | None) -> None:
    """The unit that asks an engine for its build names the profile, and no other unit does."""
    assert names.profile_of_build(unit) == profile

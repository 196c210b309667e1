"""What the launch programs may import, and names as everything else sees them."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain import names as domain
from appliance.domain.claims import ALL_GPUS, CPU
from appliance.launch import names
from appliance.planning.unit_identity import BACKEND_GROUP, own_user
from tests.unit.launch_rig import ROOT, run

_ALPHABET = "abz019._-AZ/ \n@:%é٣"


@given(st.one_of(st.text(), st.text(alphabet=_ALPHABET, max_size=60)))
def test_both_rules_for_names_agree(text: str) -> None:
    """A name is valid for the launch programs exactly when it is valid for the daemon."""
    assert names.is_profile_name(text) == domain.is_profile_name(text)


@pytest.mark.parametrize("text", ["a", "a" * 48, "a" * 49, "a\n", "", ".a", "a.", "9", "a_-."])
def test_both_rules_agree_at_their_edges(text: str) -> None:
    """The same at the ends of what is allowed."""
    assert names.is_profile_name(text) == domain.is_profile_name(text)


def test_both_name_the_same_unit() -> None:
    """The gate clears the start limit of the unit that the daemon starts."""
    assert names.unit_of("gemma-4") == domain.unit_of("gemma-4")


@pytest.mark.parametrize(
    ("user", "uid", "group", "service", "engine"),
    [
        ("ana", 1000, "ana", False, False),
        ("root", 0, "root", False, False),
        ("applianceana", 1001, "users", False, False),
        ("appliance", 990, "appliance", True, False),
        (domain.GATEWAY_USER, 991, "appliance-gateway", True, False),
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


def test_engines_have_one_group() -> None:
    """The unit gives the group that the launch programs know engines by."""
    assert names.BACKEND_GROUP == BACKEND_GROUP


@pytest.mark.parametrize("text", [ALL_GPUS, CPU, "gpu-0", "gpu-15"])
def test_devices_are_leases(text: str) -> None:
    """Every device of a claim can be leased."""
    assert names.is_lease_name(text)


@pytest.mark.parametrize("text", ["", "gpu", "gpu-", "gpu-x", "gpu-٣", "../cpu", "cpu/", "CPU"])
def test_nothing_else_is_a_lease(text: str) -> None:
    """No other text becomes part of a path."""
    assert not names.is_lease_name(text)


_LIST_MODULES = (
    "import sys, runpy; before = set(sys.modules); sys.path.insert(0, sys.argv[1]);"
    " name = sys.argv[2]; __import__(name); print(*sorted(set(sys.modules) - before))"
)
_HEAVY = frozenset(
    {
        "argparse",
        "asyncio",
        "dataclasses",
        "json",
        "pathlib",
        "re",
        "socket",
        "subprocess",
        "typing",
    }
)


@pytest.mark.parametrize("module", ["gate", "backend", "boot"])
def test_what_runs_before_a_model_imports_little(module: str) -> None:
    """Gate, wrapper and boot import the standard library only, and none of its heavy parts."""
    argv = [sys.executable, "-I", "-c", _LIST_MODULES, str(ROOT), f"appliance.launch.{module}"]
    result = run(argv)
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.split())
    roots = {name.partition(".")[0] for name in loaded}
    assert roots <= sys.stdlib_module_names | {"appliance"}
    ours = {name for name in loaded if name.startswith("appliance.")}
    assert all(name.startswith("appliance.launch") for name in ours)
    assert not roots & _HEAVY

"""Hand edits: what is noticed, and what a profile can express."""

import pytest

from appliance.model.errors import ProfileError
from appliance.model.profile_values import Override
from appliance.switch.units.backend_unit import render
from appliance.switch.units.daemon_drop_ins import RULE_FILE, polkit_rule
from appliance.switch.units.drift import (
    Adoption,
    DriftKind,
    adoption,
    diff,
    drop_in,
    find_drift,
    owner_of,
)
from appliance.switch.units.text import sections_of
from appliance.system.toml.editing import adopted
from tests.fakes.unit_specs import LAYOUT, spec

UNIT = "appliance-backend-a.service"
TEXT = render([spec("a", "cpu")], [], LAYOUT)[UNIT]
RULE = polkit_rule(["a"], source="/p", version="1")


@pytest.mark.parametrize(
    ("file", "text", "kind"),
    [
        (UNIT, TEXT, None),
        (UNIT, TEXT.replace("252", "257"), None),
        (UNIT, TEXT + "# mine\n", DriftKind.EDITED),
        (UNIT, TEXT.replace("RestartSec=5s", "RestartSec=1s"), DriftKind.EDITED),
        (UNIT, "[Service]\nExecStart=/bin/true\n", DriftKind.FOREIGN),
        (UNIT, "", DriftKind.FOREIGN),
        (UNIT, None, DriftKind.ODD),
        (f"{UNIT}.d/x.conf", "[Service]\nNice=1\n", DriftKind.DROP_IN),
        (f"{UNIT}.d/x.conf", None, DriftKind.ODD),
        ("appliance-backend-.service.d/x.conf", "[Service]\nNice=1\n", DriftKind.SHARED),
        ("appliance-backend-.service.d/x.conf", None, DriftKind.SHARED),
        (RULE_FILE, RULE, None),
        (RULE_FILE, RULE.replace('["ref"]', '["stop"]'), DriftKind.EDITED),
        (RULE_FILE, "// mine\n", DriftKind.FOREIGN),
    ],
)
def test_what_apply_did_not_write_is_noticed(
    file: str, text: str | None, kind: DriftKind | None
) -> None:
    """A file is as apply wrote it or it is drift of one kind."""
    found = find_drift({file: text}, {})
    assert [d.kind for d in found.values()] == ([] if kind is None else [kind])


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        (UNIT, "a"),
        (f"{UNIT}.d/x.conf", "a"),
        (RULE_FILE, None),
        ("appliance-backend-A.service", None),
    ],
)
def test_a_file_belongs_to_a_profile(file: str, owner: str | None) -> None:
    """By the unit's name, for drop-ins too."""
    assert owner_of(file) == owner


def test_the_diff_is_against_what_apply_wrote() -> None:
    """A person sees the edit itself, and the whole of a file that apply never wrote."""
    edited = TEXT.replace("RestartSec=5s", "RestartSec=1s")
    text = find_drift({UNIT: edited}, {UNIT: TEXT})[UNIT].diff
    changed = [
        line for line in text.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}
    ]
    assert changed == ["-RestartSec=5s", "+RestartSec=1s"]
    assert "+[Service]" in diff("", "[Service]", "x")
    assert diff(TEXT, TEXT, "x") == ""


def values(section: str, key: str, *new: str) -> Override:
    """One override."""
    return Override(section=section, key=key, values=new)


@pytest.mark.parametrize(
    ("old", "new", "override"),
    [
        ("RestartSec=5s", "RestartSec=1s", values("Service", "RestartSec", "1s")),
        ("TasksMax=8192", "TasksMax=8192\nNice=5", values("Service", "Nice", "5")),
        (
            "SystemCallFilter=@system-service",
            "SystemCallFilter=@system-service @debug",
            values("Service", "SystemCallFilter", "@debug"),
        ),
        (
            "After=appliance-hold.service",
            "After=appliance-hold.service my.service",
            values("Unit", "After", "my.service"),
        ),
        (
            "CollectMode=inactive",
            "CollectMode=inactive\nWants=a.service\nWants=b.service",
            values("Unit", "Wants", "a.service", "b.service"),
        ),
    ],
)
def test_an_edit_becomes_overrides(old: str, new: str, override: Override) -> None:
    """A changed or added line is one key of [unit]; lists that we need are only added to."""
    assert old in TEXT
    assert adoption(TEXT, TEXT.replace(old, new, 1)) == Adoption(overrides=(override,))


def test_order_and_comments_are_no_edit() -> None:
    """Only assignments count."""
    moved = TEXT.replace("Slice=appliance.slice\n", "").replace(
        "KillMode=mixed\n", "# why\nKillMode=mixed\n\nno assignment\nSlice = appliance.slice\n"
    )
    assert adoption(TEXT, moved) == Adoption()


def test_changed_variables_become_env() -> None:
    """Environment= is read by systemd's rules and belongs under [env]."""
    edited = TEXT.replace(
        "KillMode=mixed\n", 'KillMode=mixed\nEnvironment=A=1 "B=x  y%%" C=\\x41\n'
    )
    assert adoption(TEXT, edited) == Adoption(environment={"A": "1", "B": "x  y%", "C": "A"})


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("-- /opt/vllm", "-- /usr/bin/vllm", "Service.ExecStart: change the engine's own keys"),
        ("OOMPolicy=stop\n", "", "Service.OOMPolicy was removed"),
        ("KillMode=mixed", "KillMode=process", 'Service.KillMode: "process" is not one of'),
        (
            "Conflicts=appliance-hold.service\n",
            "Conflicts=x.service\n",
            "appliance-hold.service was",
        ),
        ("IPAddressAllow=localhost", "IPAddressAllow=any", "Service.IPAddressAllow"),
        ("TasksMax=8192", 'TasksMax=8192\nEnvironment="A=1', "the quotes do not match"),
        (
            "TasksMax=8192",
            "TasksMax=8192\nExecStopPost=/b ; +/c",
            'Service.ExecStopPost: "/b ; +/c"',
        ),
        ("TasksMax=8192", "TasksMax=8192\nExecStopPost=/b \\\nx ; +/c", "Service.ExecStopPost: "),
        ("TasksMax=8192", "TasksMax=", "Service.TasksMax"),
        ("TasksMax=8192", "TasksMax=8192\nProtectClock=no", "Service.ProtectClock"),
        ("Environment=HOME=/var/lib/appliance-backend/a\n", "", "HOME was removed"),
        ("[Service]", "[Install]\nWantedBy=multi-user.target\n[Service]", "Install.WantedBy"),
    ],
)
def test_what_no_profile_can_say_is_refused(old: str, new: str, sentence: str) -> None:
    """The refusal names the key, and nothing is silently lost."""
    assert old in TEXT
    (refused,) = adoption(TEXT, TEXT.replace(old, new, 1)).refused
    assert sentence in refused


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Service]\nNice=5\n", Adoption(overrides=(values("Service", "Nice", "5"),))),
        ("[Service]\nRestartSec=1\n", Adoption(overrides=(values("Service", "RestartSec", "1"),))),
        ("[Unit]\nAfter=x.service\n", Adoption(overrides=(values("Unit", "After", "x.service"),))),
        ("[Service]\nEnvironment=A=1\n", Adoption(environment={"A": "1"})),
        ("# nothing\n", Adoption()),
    ],
)
def test_a_drop_in_is_an_edit_of_its_unit(text: str, expected: Adoption) -> None:
    """A file of `systemctl edit` is adopted like a change of the unit's file."""
    assert adoption(TEXT, drop_in(TEXT, text)) == expected


def test_an_empty_assignment_in_a_drop_in_clears() -> None:
    """As in systemd; a list of ours cannot be cleared."""
    merged = drop_in(TEXT, "[Service]\nExecStart=\nExecStart=/bin/true\n")
    (service,) = (s for s in sections_of(merged) if s.name == "Service")
    assert service.values("ExecStart") == ("/bin/true",)
    assert adoption(TEXT, drop_in(TEXT, "[Unit]\nConflicts=\n")).refused


PROFILE = """\
# my model
engine = "command"   # why

[env]
B = "2"
"""


@pytest.mark.parametrize(
    ("text", "added"),
    [
        (PROFILE, ['A = "1"', "[unit]", 'Service.Nice = "5"', 'Unit.After = "x.service"']),
        (PROFILE + "[unit]\nService.Nice = 1 # hm\n", ['Service.Nice = "5" # hm']),
        (PROFILE + '[unit]\n"Service.Nice" = 1\n', ['"Service.Nice" = "5"']),
        (PROFILE + "[unit.Service]\nNice = 1\n", ['Nice = "5"', "[unit.Service]"]),
        (
            PROFILE + '[unit]\nUnit.After = "w.service"\n',
            ['Unit.After = ["w.service", "x.service"]'],
        ),
        (PROFILE + '[unit]\nUnit.After = ["w.service"]\n', ['"w.service", "x.service"']),
    ],
)
def test_a_profile_takes_overrides_and_keeps_its_comments(text: str, added: list[str]) -> None:
    """However [unit] is spelt, the new values join it and the rest stays."""
    kept = Adoption(
        overrides=(values("Service", "Nice", "5"), values("Unit", "After", "x.service")),
        environment={"A": "1"},
    )
    result = adopted(text, kept, "a.toml")
    for line in [*added, "# my model", 'engine = "command"   # why', 'B = "2"']:
        assert line in result


@pytest.mark.parametrize("text", ["[unit", "unit = 1\n", 'unit = {Service = "x"}\n'])
def test_a_profile_that_cannot_take_them_is_an_error(text: str) -> None:
    """Broken TOML, or a [unit] that is no table, is the owner's to correct."""
    kept = Adoption(overrides=(values("Service", "Nice", "5"),))
    with pytest.raises(ProfileError, match=r"a\.toml"):
        adopted(text, kept, "a.toml")

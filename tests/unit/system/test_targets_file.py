"""File of the targets: what it may hold, what its errors show, and how verbs change it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.alerts import Severity
from appliance.model.targets import Target, Targets, TargetStanding
from appliance.system.targets_file import parse_targets, standing_of
from appliance.system.toml.editing import with_heartbeat, with_target, without_target
from appliance.system.toml.file import FaultyFileError, fault_lines

TEXT = """\
# mine
heartbeat_url = "https://hc.example/SECRET0"

[[target]]
name = "phone"  # Ana's
url = "ntfys://SECRET1:SECRET2@ntfy.example/SECRET3"
min_severity = "warning"
click = "https://box.example/SECRET4"
box_silent = true

[[target]]
name = "chat"
url = "discord://SECRET5/SECRET6"
"""
TARGETS = Targets(
    targets=(
        Target(
            name="phone",
            url="ntfys://SECRET1:SECRET2@ntfy.example/SECRET3",
            min_severity=Severity.WARNING,
            click_url="https://box.example/SECRET4",
            box_silent=True,
        ),
        Target(name="chat", url="discord://SECRET5/SECRET6"),
    ),
    heartbeat_url="https://hc.example/SECRET0",
)


def faults(text: str) -> str:
    with pytest.raises(FaultyFileError) as error:
        parse_targets(text.encode())
    return fault_lines("targets.toml", error.value.faults)


def test_a_file_holds_targets() -> None:
    """Keys of a target are all read, and those that are left out have their defaults."""
    assert parse_targets(TEXT.encode()) == TARGETS
    assert parse_targets(b"") == parse_targets(b'heartbeat_url=""') == Targets()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[target]]\nname = "a"', "targets.toml:1: a target has no url"),
        ('[[target]]\nurl = "ntfy://t"', "targets.toml:1: a target has no name"),
        ('[[target]]\nname = "A"\nurl = "ntfy://t"', "targets.toml:2: name is no name of"),
        ('[[target]]\nname = "a"\nurl = "SECRET"', "targets.toml:3: url is no address"),
        ('[[target]]\nname = "a"\nurl = 5', "targets.toml:3: url is no text in quotes"),
        (
            '[[target]]\nname = "a"\nurl = "ntfy://t"\nmin_severity = "SECRET"',
            "targets.toml:4: min_severity is none of critical, warning, info",
        ),
        (
            '[[target]]\nname = "a"\nurl = "ntfy://t"\nbox_silent = "SECRET"',
            "targets.toml:4: box_silent is neither true nor false",
        ),
        (
            '[[target]]\nname = "a"\nurl = "ntfy://t"\nclick = "SECRET"',
            "targets.toml:4: click is no address",
        ),
        (
            '[[target]]\nname = "a"\nurl = "ntfy://t"\nSECRET = 1',
            "targets.toml:4: unknown key: box_silent, click, min_severity, name, url are the keys",
        ),
        ("SECRET = 1", "targets.toml:1: unknown key: heartbeat_url, target are the keys"),
        ('heartbeat_url = "SECRET"', "targets.toml:1: heartbeat_url is no address"),
        ('target = "SECRET"', "targets.toml:1: target is no list of tables: write [[target]]"),
        ('target = ["SECRET"]', "targets.toml:1: target is no list of tables: write [[target]]"),
        (
            '[[target]]\nname = "a"\nurl = "ntfy://t"\n[[target]]\nname = "a"\nurl = "ntfy://t"',
            "targets.toml:5: the name of another target",
        ),
        ('[[target]]\nname = "a"\nurl = "SECRET', "targets.toml:3: not TOML"),
    ],
)
def test_faults_have_a_line_and_no_value(text: str, expected: str) -> None:
    """An error tells the line and what is wrong, and shows nothing of the file."""
    found = faults(text)
    assert found.startswith(expected)
    assert "SECRET" not in found


def test_there_are_at_most_sixteen_targets() -> None:
    """Each target costs a request for each message."""
    rows = [f'[[target]]\nname = "t{n}"\nurl = "ntfy://t"\n' for n in range(17)]
    assert faults("".join(rows)) == "targets.toml:1: more than 16 targets"
    assert len(parse_targets("".join(rows[:16]).encode()).targets) == 16


@given(place=st.integers(0, len(TEXT)), junk=st.text(max_size=3), cut=st.integers(0, 40))
def test_no_damage_makes_an_error_show_a_secret(place: int, junk: str, cut: int) -> None:
    """However a file is damaged, its errors hold no value of it."""
    damaged = TEXT[:place] + junk + TEXT[place + cut :]
    try:
        parse_targets(damaged.encode(errors="surrogatepass"))
    except FaultyFileError as error:
        shown = fault_lines("targets.toml", error.faults)
        assert re.search("SECRET|CRET", shown) is None


def test_others_know_a_target_without_its_address() -> None:
    """A target as everybody may know it has name, kind and severity."""
    phone, chat = map(standing_of, TARGETS.targets)
    assert phone == TargetStanding(name="phone", kind="ntfy", min_severity="warning")
    assert chat == TargetStanding(name="chat", kind="discord", min_severity="info")


def test_changes_keep_comments_and_order() -> None:
    """A target that is added and removed again leaves the file as it was."""
    new = Target(name="new", url='json://h/"x"', min_severity=Severity.CRITICAL)
    more = with_target(TEXT, new)
    assert more.startswith(TEXT.rstrip("\n"))
    assert parse_targets(more.encode()).targets == (*TARGETS.targets, new)
    assert without_target(more, "new").rstrip() == TEXT.rstrip()
    fewer = without_target(TEXT, "chat")
    assert "# Ana's" in fewer
    assert [t.name for t in parse_targets(fewer.encode()).targets] == ["phone"]
    none = without_target(fewer, "phone")
    assert parse_targets(none.encode()) == Targets(heartbeat_url=TARGETS.heartbeat_url)
    assert "# mine" in none


@pytest.mark.parametrize("text", ["", "# mine\n", "target = []\n", 'heartbeat_url = "http://h/"\n'])
def test_the_first_target_is_added(text: str) -> None:
    """A file without targets takes one, with all its keys."""
    target = TARGETS.targets[0]
    assert parse_targets(with_target(text, target).encode()).targets == (target,)


@pytest.mark.parametrize(
    "text", ["", TEXT, "# mine\n", '[[target]]\nname = "a"\nurl = "ntfy://t"\n']
)
def test_the_heartbeat_is_set_and_removed(text: str) -> None:
    """The address of the outside watch changes, and the targets stay."""
    targets = parse_targets(text.encode()).targets
    there = with_heartbeat(text, "https://hc.example/y")
    found = parse_targets(there.encode())
    assert (found.targets, found.heartbeat_url) == (targets, "https://hc.example/y")
    gone = parse_targets(with_heartbeat(there, "").encode())
    assert (gone.targets, gone.heartbeat_url) == (targets, "")

"""Messages about alerts: what a phone shows of every rule, early, late and when it is over."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.alerts.messages import Rendering, command_of, joint_message, message, sequence_id
from appliance.alerts.rules import RULES
from appliance.model.alerts import (
    BOX,
    AlertRule,
    Message,
    MessageAction,
    Severity,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)

NOW = 1_800_000_000.0
SINCE = NOW - 35 * 60
GENESIS = Subject(kind=SubjectKind.PROFILE, name="genesis")
GPU = Subject(kind=SubjectKind.GPU, name="GPU-6f0c")
WATCH = Subject(kind=SubjectKind.WATCH, name="proxy")
SLOW = Transition(
    unix_s=NOW - 20,
    kind=TransitionKind.FIRED,
    alert="A17",
    subject=GENESIS,
    rule=AlertRule.SLOW,
    episode=3,
    severity=Severity.WARNING,
    fact="slow: 27.1 tok/s (was 41.0)",
    details=("4 probes, -34 %",),
    likely="11 of 49 layers on the CPU",
    command="appliance status genesis",
    since_unix_s=SINCE,
)


def clock(unix_s: float) -> str:
    """Minutes before and after four o'clock."""
    minutes = round((unix_s - NOW) / 60) + 5 * 60
    return f"{minutes // 60:02}:{minutes % 60:02}"


HERE = Rendering(host="garage", now_unix_s=NOW, clock=clock)


def text(shown: Message) -> Sequence[str]:
    return [shown.title, *shown.body.splitlines()]


def test_a_message_says_what_since_when_why_and_what_to_type() -> None:
    """The title has the profile, the fact and the short id; at most three lines are before the command."""
    assert text(message(SLOW, HERE)) == [
        "▼ genesis slow: 27.1 tok/s (was 41.0) #A17",
        "garage · since 04:25 (35 min)",
        "4 probes, -34 %",
        "Likely: 11 of 49 layers on the CPU",
        "Do: appliance status genesis",
        "Runbook: slow",
    ]


def test_the_readme_shows_such_a_message() -> None:
    """The example in the README is what this alert is told as."""
    readme = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    assert "\n".join(["```text", *text(message(SLOW, HERE)), "```"]) in readme


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        (TransitionKind.FIRED, "▼ genesis slow: 27.1 tok/s (was 41.0) #A17"),
        (TransitionKind.CHANGED, "▼ genesis slow: 27.1 tok/s (was 41.0) #A17"),
        (TransitionKind.REMINDED, "▼ genesis still slow: 27.1 tok/s (was 41.0) #A17"),
        (TransitionKind.FLAPPING, "≈ genesis comes and goes: slow: 27.1 tok/s (was 41.0) #A17"),
        (TransitionKind.RESOLVED, "▲ genesis is as fast as before #A17"),
    ],
)
def test_each_kind_of_change_has_its_title(kind: TransitionKind, title: str) -> None:
    """The changes are one entry on the phone, since they share the sequence id."""
    shown = message(SLOW.replaced(kind=kind), HERE)
    assert shown.title == title
    assert shown.sequence_id == "garage-A17-slow-3"
    assert shown.resolved is (kind is TransitionKind.RESOLVED)


def test_the_end_tells_from_when_to_when() -> None:
    """A message that it is over has no command, no button, and no likely cause."""
    over = SLOW.replaced(kind=TransitionKind.RESOLVED, unix_s=NOW)
    shown = message(over, replace(HERE, actions=(MessageAction(label="Ack", url="http://x"),)))
    assert shown.body.splitlines() == [
        "garage · 04:25 to 05:00 (35 min)",
        "It was: slow: 27.1 tok/s (was 41.0)",
    ]
    assert shown.actions == ()
    assert shown.tags == ("white_check_mark",)
    assert message(over.replaced(fact=""), HERE).body == "garage · 04:25 to 05:00 (35 min)"


def test_what_came_and_goes_says_when_it_was_well() -> None:
    """An end that is told once it is stable says for how long; what still comes and goes says since when it is well."""
    over = SLOW.replaced(kind=TransitionKind.RESOLVED, unix_s=NOW, ended_unix_s=NOW - 600)
    assert message(over, HERE).body.splitlines()[0] == (
        "garage · 04:25 to 04:50 (25 min) · stable for 10 min"
    )
    shown = message(
        over.replaced(kind=TransitionKind.FLAPPING, ended_unix_s=NOW - 60), HERE
    ).body.splitlines()
    assert shown[0] == "garage · is as fast as before since 04:59 (60 s)"
    assert not any(line.startswith("Do:") for line in shown)


def test_a_late_message_says_so() -> None:
    """A message that waited for the network tells how long; one that waited on purpose does not."""
    late = SLOW.replaced(unix_s=NOW - 11_520)
    assert message(late, HERE).body.splitlines()[0] == (
        "garage · since 04:25 (35 min) · delayed 3 h 12 min"
    )
    meant = replace(HERE, due_unix_s=NOW - 5)
    assert "delayed" not in message(late, meant).body


def test_severity_and_buttons_go_along() -> None:
    """Services that know tags, links and buttons get them beside the text."""
    button = MessageAction(label="Ack", url="http://garage.example:8010/act/1")
    here = replace(HERE, actions=(button,), click_url="http://garage.example:8010/")
    shown = message(SLOW.replaced(severity=Severity.CRITICAL), here)
    assert (shown.severity, shown.tags) == (Severity.CRITICAL, ("rotating_light",))
    assert (shown.actions, shown.click_url) == ((button,), "http://garage.example:8010/")


def test_a_long_fact_leaves_room_for_the_id() -> None:
    """Titles end after 100 characters with the short id; lines of the body are clipped as well."""
    long = SLOW.replaced(fact="slow " * 60, details=("x" * 1000, " \n "), likely="y\n" * 400)
    shown = message(long, HERE)
    assert len(shown.title) <= 100
    assert shown.title.endswith("… #A17")
    assert all(len(line) <= 240 for line in shown.body.splitlines())
    assert len(shown.body.splitlines()) == 5


TITLES = {
    AlertRule.LIVE_DOWN: (GENESIS, "▲ genesis serves again", "appliance status genesis"),
    AlertRule.NO_PROGRESS: (GENESIS, "▲ genesis answers again", "appliance restart genesis"),
    AlertRule.CRASH_LOOP: (GENESIS, "▲ genesis is stable again", "appliance logs genesis -n 50"),
    AlertRule.CPU_FALLBACK: (
        GENESIS,
        "▲ genesis is where its profile says",
        "appliance status genesis",
    ),
    AlertRule.SLOW: (GENESIS, "▲ genesis is as fast as before", "appliance history genesis"),
    AlertRule.QUALITY: (GENESIS, "▲ genesis answers rightly again", "appliance status genesis"),
    AlertRule.NO_PROBE: (GENESIS, "▲ genesis is measured again", "appliance probe genesis"),
    AlertRule.PATCH: (GENESIS, "▲ genesis is patched", "appliance logs genesis -n 50"),
    AlertRule.DRIFT: (
        GENESIS,
        "▲ genesis has the unit that was applied",
        "appliance apply --dry-run",
    ),
    AlertRule.SWITCH_FAILED: (
        GENESIS,
        "▲ genesis was switched to since",
        "journalctl -u appliance-supervisor -n 50",
    ),
    AlertRule.SWITCH_STUCK: (GENESIS, "▲ genesis is no longer stuck", "appliance cancel"),
    AlertRule.EXPOSED: (GENESIS, "▲ genesis is no longer exposed", "ss -ltnp"),
    AlertRule.FILTER_OFF: (
        GENESIS,
        "▲ genesis has its loopback filter",
        "systemctl status appliance-backend-genesis",
    ),
    AlertRule.FOREIGN_HOLDER: (BOX, "▲ garage is held by nobody else", "appliance status"),
    AlertRule.UNATTRIBUTED: (GPU, "▲ GPU has no unexplained memory", "appliance status"),
    AlertRule.GPU_LOST: (GPU, "▲ GPU is back", "nvidia-smi"),
    AlertRule.GPU_ERROR: (GPU, "▲ GPU has no new errors", "journalctl -k -g Xid"),
    AlertRule.GPU_RECOVERY: (GPU, "▲ GPU needs no recovery", "nvidia-smi -q"),
    AlertRule.ECC: (GPU, "▲ GPU has no new memory errors", "nvidia-smi -q -d ECC,ROW_REMAPPER"),
    AlertRule.THROTTLE: (
        GPU,
        "▲ GPU is no longer throttled",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
    ),
    AlertRule.PCIE: (GPU, "▲ GPU has its full PCIe link", "nvidia-smi -q -d PCIE"),
    AlertRule.DRIVER: (BOX, "▲ garage driver answers again", "nvidia-smi"),
    AlertRule.DISK: (BOX, "▲ garage has room again", "df -h"),
    AlertRule.SUPERVISOR_DOWN: (
        BOX,
        "▲ garage supervisor answers again",
        "systemctl status appliance-supervisor",
    ),
    AlertRule.GATEWAY_DOWN: (
        BOX,
        "▲ garage gateway answers again",
        "systemctl status appliance-gateway",
    ),
    AlertRule.WATCH_DOWN: (WATCH, "▲ proxy is up again", "appliance status"),
    AlertRule.TEST: (BOX, "▲ garage has sent its test", "appliance alerts"),
}


@pytest.mark.parametrize("rule", AlertRule)
def test_every_rule_has_words(rule: AlertRule) -> None:
    """A finding without texts of its own still gives a title, a command and the words for its end."""
    subject, over, command = TITLES[rule]
    bare = Transition(
        unix_s=NOW,
        kind=TransitionKind.FIRED,
        alert="A1",
        subject=subject,
        rule=rule,
        episode=1,
        severity=Severity.CRITICAL,
    )
    assert RULES.keys() == TITLES.keys() == set(AlertRule)
    assert message(bare, HERE).title.endswith(f" {rule.value} #A1")
    assert message(bare, HERE).body.splitlines()[1:] == [f"Do: {command}", f"Runbook: {rule.value}"]
    assert command_of(bare) == command
    assert message(bare.replaced(kind=TransitionKind.RESOLVED), HERE).title == f"{over} #A1"


def test_sequence_ids_are_words() -> None:
    """Receivers take letters, digits, - and _ alone, at most 64 of them."""
    odd = sequence_id("gärage.local/" * 9, SLOW)
    assert len(odd) <= 64
    assert odd.endswith("A17-slow-3")
    assert odd.replace("-", "").isalnum()
    assert odd.isascii()


def changes(number: int) -> list[Transition]:
    return [SLOW.replaced(alert=f"A{n}", unix_s=NOW - 7200 + n) for n in range(1, number + 1)]


@pytest.mark.parametrize("is_late", [False, True])
def test_several_alerts_in_one_message(*, is_late: bool) -> None:
    """One message counts them, names what still fires first, and what is over last."""
    first, second, third = changes(3)
    worst = third.replaced(severity=Severity.CRITICAL, fact="down", rule=AlertRule.LIVE_DOWN)
    over = first.replaced(kind=TransitionKind.RESOLVED, fact="", unix_s=NOW)
    shown = joint_message([first, second, worst, over], HERE, joined_id="digest-7", is_late=is_late)
    assert text(shown) == [
        "▼ garage: 3 alerts, 2 not over",
        *(["Nothing could be sent since 03:00."] if is_late else []),
        "▼ genesis down #A3 · 04:25",
        "▼ genesis slow: 27.1 tok/s (was 41.0) #A2 · 04:25",
        "▲ genesis is as fast as before #A1 · 04:25",
        "Do: appliance alerts",
    ]
    assert (shown.severity, shown.resolved) == (Severity.CRITICAL, False)
    assert (shown.sequence_id, shown.tags) == ("garage-digest-7", ("rotating_light",))


def test_a_digest_of_what_is_over_alarms_nobody() -> None:
    """Where nothing fires any more the message is one of information."""
    fired = changes(1)[0]
    over = fired.replaced(kind=TransitionKind.RESOLVED, unix_s=NOW)
    shown = joint_message([fired, over], HERE, joined_id="digest-1", is_late=False)
    assert shown.title == "▲ garage: 1 alert, all over"
    assert (shown.severity, shown.resolved) == (Severity.INFO, True)


def test_a_long_digest_counts_the_rest() -> None:
    """At most twelve alerts are named."""
    shown = joint_message(changes(40), HERE, joined_id="digest-1", is_late=False)
    assert shown.body.splitlines()[-2:] == ["and 28 more", "Do: appliance alerts"]
    assert len(shown.body.splitlines()) == 14

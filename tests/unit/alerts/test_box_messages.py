"""Messages about a silent box and a dead health agent."""

from appliance.alerts.box_messages import (
    BoxWords,
    agent_back,
    agent_dead,
    box_back,
    box_silent,
    silent_sequence_id,
)

NOW = 1_800_000_000.0
WORDS = BoxWords(host="garage", clock=lambda unix_s: f"04:{(unix_s - NOW) // 60 + 10:02.0f}")


def test_a_silent_box_tells_since_when() -> None:
    """The message is written before the box is silent, so it tells the last sign of life."""
    silent = box_silent(WORDS, NOW)
    assert silent.title == "▼ garage is silent"
    assert silent.body.splitlines() == [
        (
            "Nothing has come from garage since 04:10: it has no power, no network, or its health"
            " agent is dead."
        ),
        "Do: ssh garage appliance status",
        "Runbook: box-silent",
    ]
    back = box_back(WORDS, silent_unix_s=NOW, now_unix_s=NOW + 720)
    assert (back.title, back.resolved) == ("▲ garage is heard again", True)
    assert back.body == "garage · silent 04:10 to 04:22 (12 min)"
    assert (
        back.sequence_id == silent.sequence_id == silent_sequence_id(WORDS) == "garage-box-silent"
    )


def test_a_dead_agent_tells_what_goes_on() -> None:
    """Models go on without their watch; its return is told in the same entry."""
    dead = agent_dead(WORDS, now_unix_s=NOW, result="watchdog", again_in="15 min")
    assert dead.title == "▼ garage: the health agent is dead"
    assert dead.body.splitlines() == [
        "garage · since 04:10 (watchdog)",
        "Models go on, and nobody watches them; tried again in 15 min.",
        "Do: journalctl -u appliance-health -n 50",
        "Runbook: health-agent-dead",
    ]
    assert "(" not in agent_dead(WORDS, now_unix_s=NOW, result="", again_in="1 min").body
    back = agent_back(WORDS, dead_unix_s=NOW, now_unix_s=NOW + 960)
    assert back.body == "garage · nobody watched 04:10 to 04:26 (16 min)"
    assert back.sequence_id == dead.sequence_id == "garage-health-agent-dead"

"""Words of each alert rule: the end of a fault in a title, and the command that a person types first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from appliance.model.alerts import AlertRule, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWords:
    """Words of one rule."""

    over: str
    """Phrase after the subject's name once the fault is over: ``genesis serves again``."""
    command: str
    """Command for a finding that names none; ``NAME`` stands for the subject's name."""


RULE_WORDS: Final[Mapping[AlertRule, RuleWords]] = {
    AlertRule.LIVE_DOWN: RuleWords(over="serves again", command="appliance status NAME"),
    AlertRule.NO_PROGRESS: RuleWords(over="answers again", command="appliance restart NAME"),
    AlertRule.CRASH_LOOP: RuleWords(over="is stable again", command="appliance logs NAME -n 50"),
    AlertRule.CPU_FALLBACK: RuleWords(
        over="is where its profile says", command="appliance status NAME"
    ),
    AlertRule.SLOW: RuleWords(over="is as fast as before", command="appliance history NAME"),
    AlertRule.QUALITY: RuleWords(over="answers rightly again", command="appliance status NAME"),
    AlertRule.NO_PROBE: RuleWords(over="is measured again", command="appliance probe NAME"),
    AlertRule.PATCH: RuleWords(over="is patched", command="appliance logs NAME -n 50"),
    AlertRule.DRIFT: RuleWords(
        over="has the unit that was applied", command="appliance apply --dry-run"
    ),
    AlertRule.SWITCH_FAILED: RuleWords(
        over="was switched to since", command="journalctl -u appliance-supervisor -n 50"
    ),
    AlertRule.SWITCH_STUCK: RuleWords(over="is no longer stuck", command="appliance cancel"),
    AlertRule.EXPOSED: RuleWords(over="is no longer exposed", command="ss -ltnp"),
    AlertRule.FILTER_OFF: RuleWords(
        over="has its loopback filter", command="systemctl status appliance-backend-NAME"
    ),
    AlertRule.FOREIGN_HOLDER: RuleWords(over="is held by nobody else", command="appliance status"),
    AlertRule.UNATTRIBUTED: RuleWords(over="has no unexplained memory", command="appliance status"),
    AlertRule.GPU_LOST: RuleWords(over="is back", command="nvidia-smi"),
    AlertRule.GPU_ERROR: RuleWords(over="has no new errors", command="journalctl -k -g Xid"),
    AlertRule.GPU_RECOVERY: RuleWords(over="needs no recovery", command="nvidia-smi -q"),
    AlertRule.ECC: RuleWords(
        over="has no new memory errors", command="nvidia-smi -q -d ECC,ROW_REMAPPER"
    ),
    AlertRule.THROTTLE: RuleWords(
        over="is no longer throttled", command="nvidia-smi -q -d PERFORMANCE,TEMPERATURE"
    ),
    AlertRule.PCIE: RuleWords(over="has its full PCIe link", command="nvidia-smi -q -d PCIE"),
    AlertRule.DRIVER: RuleWords(over="driver answers again", command="nvidia-smi"),
    AlertRule.DISK: RuleWords(over="has room again", command="df -h"),
    AlertRule.SUPERVISOR_DOWN: RuleWords(
        over="supervisor answers again", command="systemctl status appliance-supervisor"
    ),
    AlertRule.GATEWAY_DOWN: RuleWords(
        over="gateway answers again", command="systemctl status appliance-gateway"
    ),
    AlertRule.WATCH_DOWN: RuleWords(over="is up again", command="appliance status"),
    AlertRule.TEST: RuleWords(over="has sent its test", command="appliance alerts"),
}
"""Words by rule; docs/runbooks.md has the rest."""


def over_phrase(rule: AlertRule, over: str) -> str:
    """Return the phrase about the end of an alert: its own, or its rule's where that is empty."""
    return over or RULE_WORDS[rule].over


def command_for(rule: AlertRule, subject: Subject, command: str) -> str:
    """Return the command that a person types next: the finding's own, or its rule's where that is empty."""
    return command or RULE_WORDS[rule].command.replace("NAME", subject.name).rstrip()

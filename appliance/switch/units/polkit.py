"""Rule for polkit: the units that the supervisor may keep loaded.

No jobs: polkit is not told their mode, and some modes reach other units (launch.jobs).
"""

from collections.abc import Iterable
from json import dumps
from typing import Final

from appliance.model.names import HOLD_UNIT, RUN_UNIT, SUPERVISOR_USER, unit_of
from appliance.model.paths import POLKIT_RULE
from appliance.switch.units.text import sealed

RULE_FILE: Final = POLKIT_RULE.rpartition("/")[2]
_VERBS: Final = ("ref",)
_RULE: Final = """\
var UNITS = {units};
var VERBS = {verbs};

polkit.addRule(function(action, subject) {{
  if (action.id === "org.freedesktop.systemd1.manage-units" &&
      subject.user === {user} &&
      UNITS.indexOf(action.lookup("unit")) >= 0 &&
      VERBS.indexOf(action.lookup("verb")) >= 0) {{
    return polkit.Result.YES;
  }}
}});
"""


def polkit_rule(
    profiles: Iterable[str], *, source: str, version: str, user: str = SUPERVISOR_USER
) -> str:
    """Return the rule for `user` on the backends of `profiles`, the hold and the run.

    Names are exact: newer systemd asks with the same action when a transient unit is made, so
    that a prefix would let the daemon run anything as root.
    """
    units = [*sorted(map(unit_of, profiles)), HOLD_UNIT, RUN_UNIT]
    body = _RULE.format(units=dumps(units, indent=2), verbs=dumps(_VERBS), user=dumps(user))
    return sealed(body, source=source, version=version, comment="//", adoptable=False)

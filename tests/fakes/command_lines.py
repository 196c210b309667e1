"""Command lines of verbs that the supervisor answers, and the requests that they send."""

from collections.abc import Mapping, Sequence
from typing import Final

REQUESTS: Final[Sequence[tuple[str, str, Mapping[str, object]]]] = (
    ("switch a --now", "switch", {"name": "a", "drain_s": 0.0}),
    ("switch a --drain 1m --no-rollback", "switch", {"drain_s": 60.0, "rollback": False}),
    ("switch a b --now", "switch", {"name": None, "names": ["a", "b"], "drain_s": 0.0}),
    ("start", "start", {"names": []}),
    ("start a b", "start", {"names": ["a", "b"]}),
    ("stop a --now", "stop", {"names": ["a"], "drain_s": 0.0}),
    ("restart --drain 5s", "restart", {"names": [], "drain_s": 5.0}),
    ("hold", "hold", {"for_s": None, "drain_s": None}),
    ("hold --for 2h", "hold", {"for_s": 7200.0}),
    ("cancel", "cancel", {}),
    ("mark a retired", "mark", {"name": "a", "mark": "retired"}),
    ("uncommit a", "uncommit", {"name": "a", "exclusive": False}),
    ("uncommit --exclusive a", "uncommit", {"name": "a", "exclusive": True}),
)
"""Words after ``appliance``, the verb of the request, and some of its arguments.

The profiles are a and b. Each line also has to say without a supervisor that it is not running.
"""

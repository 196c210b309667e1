"""Examples of the API's larger answers, of one box in one story: genesis serves, and has become slow."""

from collections.abc import Mapping
from typing import Any, Final

from appliance.model.status import (
    OperationsSection,
    RecordedOperation,
    StatusDocument,
)
from appliance.web.api.answers import (
    AlertDocument,
    AlertsDocument,
    EventsDocument,
    HistoryDocument,
    OutboxDocument,
    ProfileDocument,
    ProfilesDocument,
    StatesDocument,
)

_SINCE: Final = 1795256172.0
_FIRED: Final = _SINCE + 300
_NOW: Final = _SINCE + 2100
_FACT: Final = "slow: 27.1 tok/s (was 41.0)"
_LIKELY: Final = "11 of 49 layers on the CPU"

_ALERT: Final[Mapping[str, Any]] = {
    "alert": "A17",
    "subject": "profile:genesis",
    "rule": "slow",
    "episode": 3,
    "severity": "warning",
    "fact": _FACT,
    "details": ["4 probes, -34 %"],
    "likely": _LIKELY,
    "command": "appliance status genesis",
    "since_unix_s": _SINCE,
    "fired_unix_s": _FIRED,
    "ended_unix_s": None,
    "over": "",
    "sent_unix_s": _FIRED + 12,
    "acked_by": "",
    "acked_unix_s": None,
    "gate": None,
    "reason": "",
    "flapping": False,
}
_CHANGE: Final[Mapping[str, Any]] = {
    "id": 34,
    "unix_s": _FIRED,
    "kind": "fired",
    "alert": "A17",
    "subject": "profile:genesis",
    "rule": "slow",
    "episode": 3,
    "severity": "warning",
    "fact": _FACT,
    "details": ["4 probes, -34 %"],
    "likely": _LIKELY,
    "command": "appliance status genesis",
    "since_unix_s": _SINCE,
    "over": "",
    "ended_unix_s": None,
    "by": "",
    "reason": "",
    "delivered": True,
}
_LOSS: Final[Mapping[str, Any]] = {
    "id": 12,
    "unix_s": _FIRED,
    "profile": "genesis",
    "kind": "regression",
    "series": "decode",
    "change": -0.34,
    "cause": "cpu-fallback",
    "text": _FACT,
    "rate": 27.1,
    "baseline": 41.0,
    "since_unix_s": _SINCE,
    "likely": _LIKELY,
}
_ROW: Final[Mapping[str, Any]] = {
    "id": 51,
    "key": "profile:genesis:slow:3:fired:phone",
    "target": "phone",
    "transition": {**_CHANGE, "subject": {"kind": "profile", "name": "genesis"}},
    "created_unix_s": _FIRED,
    "not_before_unix_s": _FIRED + 10,
    "is_digest": False,
    "state": "sent",
    "attempts": 1,
    "tried_unix_s": _FIRED + 12,
    "retry_unix_s": 0.0,
    "settled_unix_s": _FIRED + 12,
    "text": "",
}
_DELIVERY: Final[Mapping[str, Any]] = {
    "enabled": True,
    "targets": 1,
    "waiting": 0,
    "dead": 0,
    "oldest_s": None,
    "trouble": "",
    "heartbeat_set": True,
    "heartbeat_s": 14.0,
    "heartbeat_trouble": "",
    "attempts": {},
}
_ALERTS: Final[Mapping[str, Any]] = {
    "alerts": [_ALERT],
    "left_off": 0,
    "silences": [],
    "delivery": _DELIVERY,
}
_SPEED: Final[Mapping[str, Any]] = {
    "profile": "genesis",
    "series": [],
    "last_probe_unix_s": _NOW - 300,
    "last_outcome": "valid",
    "last_valid_unix_s": _NOW - 300,
    "next_probe_unix_s": _NOW + 600,
    "waiting": "",
    "ttft_s": 0.41,
    "cached_share": 0.62,
    "quality_pass_rate": 1.0,
    "last_canaries_unix_s": _NOW - 900,
    "silence": "",
    "trouble": "",
}
_PROFILE: Final[Mapping[str, Any]] = {
    "name": "genesis",
    "mark": "live",
    "description": "a model for code, on both GPUs",
    "engine": "vllm",
    "model": "/models/genesis",
    "served": ["genesis"],
    "endpoint": "127.0.0.1:8022",
    "claim": ["gpu-all"],
    "state": "serving",
    "committed": True,
    "since_unix_s": _SINCE - 86400,
    "uptime_s": 88500.0,
    "status_text": "serving on 127.0.0.1:8022, ready after 47.9 s",
    "restarts": 0,
    "main_pid": 4121,
    "edited_since_apply": False,
    "restart_pending": False,
    "unit_changes": [],
    "build": None,
    "memory": None,
    "stall": None,
    "verification": None,
    "note": None,
}
_OPERATION: Final[Mapping[str, Any]] = {
    "id": 18,
    "kind": "switch",
    "requested_by": "ana (token phone)",
    "target": ["genesis"],
    "profiles": ["aeon", "genesis"],
    "state": "over",
    "began_unix_s": _SINCE - 86460,
    "ms": 47900.0,
    "phase": None,
    "phase_s": None,
    "deadline_s": None,
    "rolling_back": False,
    "text": "",
    "outcome": "done",
    "failed": False,
    "cause": None,
    "message": "genesis is serving on :8022",
    "finished_unix_s": _SINCE - 86412,
    "age_s": 88512.0,
    "phases_ms": {"preflight": 200.0, "loading": 19700.0, "warm-up": 900.0},
}

_STATUS: Final[Mapping[str, Any]] = {
    "host": "garage",
    "version": "0.1.0",
    "supervisor": {"state": "up", "uptime_s": 1036800.0},
    "committed": ["genesis"],
    "hold": None,
    "run": None,
    "operation": None,
    "last_operation": None,
    "last_change": None,
    "memory": None,
    "gateway": None,
    "profiles": [_PROFILE],
    "profile_files": [],
    "watches": [],
    "verdict": {"state": "serving", "exit": 0, "why": []},
    "speed": {"note": None, "trouble": [], "profiles": {"genesis": _SPEED}},
    "alerts": _ALERTS,
}
_WHOLE_PROFILE: Final[Mapping[str, Any]] = {**_PROFILE, "speed": _SPEED, "alerts": [_ALERT]}
REHEARSAL: Final[Mapping[str, Any]] = {
    "refused": False,
    "message": "the preflight finds no obstacle",
    "plan": {"stop": ["aeon"], "start": ["genesis"], "committed_after": ["genesis"]},
    "findings": [{"level": "ok", "text": "needs ≈18.6 GiB of VRAM (observed), 24.0 total"}],
    "estimates": {},
}
EXAMPLES: Final[Mapping[type, Mapping[str, Any]]] = {
    StatusDocument: _STATUS,
    ProfileDocument: _WHOLE_PROFILE,
    ProfilesDocument: {"profiles": [_WHOLE_PROFILE]},
    HistoryDocument: {
        "rows": {"decode": [[_SINCE - 3600, 4, 40.2, 41.0, 41.9], [_SINCE, 4, 26.8, 27.1, 27.5]]},
        "baseline": None,
        "events": [_LOSS],
    },
    StatesDocument: {
        "profiles": {"genesis": [[_SINCE - 86412, "serving"], [_FIRED, "degraded"]]},
        "until_unix_s": _NOW,
    },
    EventsDocument: {"measured": [_LOSS], "alerts": [_CHANGE]},
    RecordedOperation: _OPERATION,
    OperationsSection: {"running": None, "operations": [_OPERATION]},
    OutboxDocument: {"rows": [_ROW], "delivery": _DELIVERY},
    AlertsDocument: {**_ALERTS, "windows": []},
    AlertDocument: {"alert": _ALERT, "changes": [_CHANGE], "rows": [_ROW]},
}
"""Example of each of these answers. They stand at the schemas: FastAPI leaves null out of a route's own example."""

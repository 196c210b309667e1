"""Status documents as a supervisor tells them, and the status of a command that has asked the agent too."""

from collections.abc import Mapping
from typing import Any, Literal

from appliance.model.status import StatusDocument
from appliance.wire.typed_json import from_json
from tests.fakes.cli_box import CliBox, Ended
from tests.waiting import until

SPEED_NOT_KNOWN = "speed not known: systemctl status appliance-health"


def profile_row(name: str, state: str = "stopped", **more: object) -> dict[str, object]:
    """Return the row of a profile."""
    return {
        "name": name,
        "mark": "standby",
        "description": f"model {name}",
        "engine": "vllm",
        "model": f"/models/{name}.gguf",
        "served": [name],
        "endpoint": "127.0.0.1:8022",
        "claim": ["gpu-all"],
        "state": state,
        "committed": False,
        "since_unix_s": None,
        "uptime_s": None,
        "status_text": "",
        "restarts": 0,
        "main_pid": None,
        "edited_since_apply": False,
        "restart_pending": None,
        "unit_changes": [],
        "build": None,
        "memory": None,
        "stall": None,
        "verification": None,
        "note": None,
        **more,
    }


def status_document(*rows: Mapping[str, object], **more: object) -> dict[str, Any]:
    """Return the document of a box without GPUs and without a gateway."""
    return {
        "host": "garage",
        "version": "0.1.0",
        "supervisor": {"state": "up", "uptime_s": 12 * 86_400.0},
        "committed": ["genesis"],
        "hold": None,
        "operation": None,
        "last_operation": None,
        "last_change": None,
        "run": None,
        "profile_files": [],
        "watches": [],
        "memory": None,
        "gateway": None,
        "profiles": list(rows),
        "verdict": {"state": "serving", "exit": 0, "why": []},
        **more,
    }


async def answered_status(box: CliBox, *words: str, key: Literal["speed", "alerts"]) -> Ended:
    """Return the first `status` for which the agent had time to answer.

    Args:
        box: With a supervisor and an agent.
        words: Of the command line, after the verb.
        key: Field of the document that the agent fills.
    """
    found: list[Ended] = []

    def is_answered() -> bool:
        found.append(box.run("status", *words))
        return SPEED_NOT_KNOWN not in found[-1].out and f'"{key}": null' not in found[-1].out

    await until(is_answered)
    return found[-1]


def as_status(document: Mapping[str, object]) -> StatusDocument:
    """Return a document as a reader has it."""
    return from_json(StatusDocument, document)

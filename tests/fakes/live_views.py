"""Views of a box for live screens: a fixed moment, so that screens can be stored."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from appliance.cli.cells import harmless
from appliance.cli.live.box_feed import LiveView, OperationProgress
from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.presentation.health_sections import alert_section, speed_section, without_speeds
from appliance.wire.control_events import AcceptedEvent, PhaseEvent
from appliance.wire.conversation import ResultEvent
from tests.fakes.alert_answers import alert_answer, delivery_answer
from tests.fakes.health_server import report
from tests.fakes.supervisor_documents import as_status, profile_row, status_document

NOW: Final = 1_605_672_000.0
"""Wed 18 Nov 2020 04:00 UTC; of another year than any run, since that is written out."""
NOW_S: Final = 1000.0
_GIB: Final = 1 << 30


GENESIS: Final = profile_row(
    "genesis", "serving", mark="live", committed=True, uptime_s=2 * 86_400.0 + 60
)
TRAFFIC: Final = {
    "name": "genesis",
    "requests": 40,
    "in_flight": 2,
    "queued": 1,
    "errors": 3,
    "tok_s": 41.04,
    "ttft_ms": {"p50": 412.0, "p99": 1200.0},
    "engine": {"running": 2, "queued": 1, "kv_cache": 0.62},
}
GPU: Final = {
    "index": 0,
    "uuid": "GPU-0",
    "name": "NVIDIA GeForce RTX 3090",
    "total_bytes": 24 * _GIB,
    "free_bytes": 3 * _GIB,
    "used_bytes": 21 * _GIB,
    "holders": [
        {"profile": "genesis", "comm": "vllm", "pid": 71, "held_bytes": 11 * _GIB},
        {"profile": None, "comm": "python3", "pid": 4121, "held_bytes": 9 * _GIB},
    ],
    "unattributed_bytes": 0,
}
_FIRED: Final[dict[str, Any]] = {
    "id": 2,
    "unix_s": NOW - 60,
    "kind": "fired",
    "alert": "A17",
    "subject": "profile:genesis",
    "rule": "slow",
    "episode": 1,
    "severity": "warning",
    "fact": "slow: 27 tok/s (was 41)",
    "details": (),
    "likely": "",
    "command": "",
    "since_unix_s": NOW - 60,
    "by": "",
    "reason": "",
    "delivered": True,
}
SWITCHING: Final = {
    "id": 12,
    "kind": "switch",
    "target": ["aeon"],
    "phase": "load",
    "phase_s": 6.0,
    "deadline_s": None,
    "rolling_back": False,
    "elapsed_s": 12.0,
    "text": "11.2 of 18.1 GiB",
}


def document(*rows: Mapping[str, object], **more: object) -> dict[str, Any]:
    """Return a status document of a supervisor that runs, on a box with a GPU."""
    memory = {
        "ram_total_bytes": 32 * _GIB,
        "ram_available_bytes": 20 * _GIB,
        "gpus": [GPU],
        "gpu_error": None,
    }
    gateway = {"state": "up", "profiles": [TRAFFIC], "keys": []}
    usual = {"version": "0.3.0", "memory": memory, "gateway": gateway}
    return status_document(*rows, **{**usual, **more})


def measured(**more: Any) -> dict[str, Any]:
    """Return a document with what the health agent adds."""
    answer = {
        "profiles": {"genesis": msgspec.to_builtins(report("genesis", NOW))},
        "trouble": [],
        "alerts": {"alerts": [], "left_off": 0, "silences": [], "delivery": delivery_answer()},
    }
    rows = (dict(GENESIS), profile_row("aeon"), profile_row("oldmix", mark="retired"))
    told: dict[str, Any] = {**document(*rows), **more}
    sections = {"speed": speed_section(answer), "alerts": alert_section(answer)}
    return {**told, **msgspec.to_builtins(sections)}


def seen(told: Mapping[str, Any], **more: object) -> LiveView:
    """Return a view of a document that has just come."""
    return LiveView(document=as_status(harmless(told)), received_s=NOW_S, **more)  # type: ignore[arg-type]  # fields


def quiet() -> LiveView:
    """A box that serves, with a GPU whose figures are known."""
    figures = {
        "index": 0,
        "uuid": "GPU-0",
        "busy_share": 0.87,
        "temperature_c": 71,
        "power_w": 320.0,
    }
    return seen(measured(), gpus=(figures,))


def switching() -> LiveView:
    """A switch that loads, an alert, a hot GPU and events."""
    told = measured(operation=SWITCHING)
    told["profiles"][0] |= {"state": "stopping"}
    told["profiles"][1] |= {"state": "loading"}
    told["verdict"] = {"state": "nothing", "exit": 3, "why": ["switch to aeon is running"]}
    told["alerts"]["alerts"] = [alert_answer(NOW)]
    hot = {
        "index": 0,
        "uuid": "GPU-0",
        "temperature_c": 92,
        "throttle_reasons": ["hw_thermal_slowdown"],
    }
    operation = OperationProgress(
        AcceptedEvent(12, "switch", ("aeon",), ("genesis",), usual_ms=48_000.0),
        ended=(
            PhaseEvent("preflight", "done", "needs 18.6 GiB, 24.0 total", 200.0),
            PhaseEvent("drain", "done", "2 to 0 requests", 6100.0),
        ),
        running=PhaseEvent("load", "progress", "loading 11.2 of 18.1 GiB, 62 %, 12 s left", 5000.0),
        since_s=NOW_S - 6.0,
    )
    events = (
        MeasuredEvent(1, NOW - 3600, "genesis", "regression", "decode", text="slow: 27.1 tok/s"),
        AlertEvent(**_FIRED),
    )
    return seen(told, operation=operation, gpus=(hot,), events=events)


def lost() -> LiveView:
    """A supervisor that has not been heard for twelve seconds."""
    trouble = "supervisor not running: sudo systemctl start appliance-supervisor"
    return seen(measured(), lost_s=NOW_S - 12.0, trouble=trouble)


def hostile() -> LiveView:
    """Names, texts and holders that would paint over the screen, and some that are wide."""
    wide = "\u5927\u304d\u306a\u30e2\u30c7\u30eb\u306e\u540d\u524d\u306f\u9577\u3044"
    bad = "\x1b[2J\x1b[1;1H\x1b[31mowned\x07"
    told = measured()
    told["host"] = bad
    told["profiles"] += [
        profile_row(wide, "failed", note=bad),
        profile_row(bad, "serving", uptime_s=5.0),
    ]
    holder = {"profile": None, "comm": bad, "pid": 1, "held_bytes": _GIB}
    told["memory"]["gpus"] = [{**GPU, "name": wide, "holders": [holder]}]
    told["verdict"]["why"] = [bad, wide * 5]
    told["speed"] = without_speeds(bad)
    return seen(told)


def many() -> LiveView:
    """Two hundred profiles."""
    rows = [profile_row(f"model-{number:03}") for number in range(199)]
    return seen({**measured(), "profiles": [GENESIS, *rows]})


def nothing() -> LiveView:
    """A screen that has had no answer yet."""
    return LiveView()


def empty() -> LiveView:
    """A box without profiles and without GPUs, whose health agent does not answer."""
    memory = {"ram_total_bytes": 8 * _GIB, "ram_available_bytes": 6 * _GIB, "gpus": []}
    told = document(memory=memory, verdict={"state": "nothing", "exit": 3, "why": []})
    note = "speed not known: systemctl status appliance-health"
    return seen({**told, "speed": msgspec.to_builtins(without_speeds(note)), "alerts": None})


def planned() -> LiveView:
    """The plan of a switch is known."""
    plan = {"stop": ["genesis"], "start": ["aeon"], "committed_after": ["aeon"]}
    findings = [{"level": "ok", "text": "needs 18.6 GiB (declared), 24.0 total"}]
    details = {"plan": plan, "findings": findings}
    message = "the preflight finds no obstacle"
    return quiet().replaced(plan=ResultEvent(0, "rehearsed", message, details))


VIEWS: Final[Mapping[str, Callable[[], LiveView]]] = {
    "quiet": quiet,
    "switching": switching,
    "lost": lost,
    "hostile": hostile,
    "many": many,
    "nothing": nothing,
    "empty": empty,
}

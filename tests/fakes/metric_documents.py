"""Documents of a busy box from which every metric can be made, by the code of the daemons where it is small."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec

from appliance.alerts.report import DeliveryReport
from appliance.gateway.meter import Meter
from appliance.model.gpus import GpuHealth
from appliance.model.json_reader import decode_json
from appliance.model.measurements import BoxGpus, GpuEvidence, GpuSample
from appliance.model.memory import GpuState
from appliance.model.operations import Finished, Goal, Kind, Operation, Outcome
from appliance.model.speeds import SeriesSpeed, SpeedReport
from appliance.model.words import Series
from appliance.supervisor.traffic_figures import OperationTally
from appliance.web.box_documents import BoxDocuments, EnginePages
from appliance.wire.json_values import encode_json
from tests.fakes.supervisor_documents import as_status

NOW_UNIX_S: Final = 1_800_000_000.0
GIB: Final = 1 << 30
STREAM: Final = (
    b'data: {"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":11,'
    b'"prompt_tokens_details":{"cached_tokens":40}}}\n\ndata: [DONE]\n\n'
)


def as_json(value: object) -> Any:
    """Return a value as it comes out of a socket."""
    return decode_json(encode_json(value))


def status_document(names: Sequence[str] = ("aeon", "genesis")) -> dict[str, Any]:
    """Return a status; the first profile is live and serves."""
    return {
        "host": "garage",
        "verdict": {"state": "degraded", "exit": 1, "why": ['hostile "text"\n']},
        "hold": None,
        "operation": {"kind": "switch"},
        "memory": {
            "ram_total_bytes": 64 * GIB,
            "ram_available_bytes": 40 * GIB,
            "gpus": [
                {
                    "index": 0,
                    "uuid": "GPU-1",
                    "name": "RTX 3090",
                    "state": "ok",
                    "total_bytes": 24 * GIB,
                    "used_bytes": 21 * GIB,
                    "holders": [
                        {"profile": names[0], "held_bytes": 11 * GIB, "comm": "vllm", "pid": 7},
                        {"profile": names[0], "held_bytes": GIB, "comm": "vllm", "pid": 8},
                        {"profile": None, "held_bytes": 8 * GIB, "comm": 'a"} 9', "pid": 9},
                        {"profile": None, "held_bytes": None, "comm": "Xorg", "pid": 10},
                    ],
                    "unattributed_bytes": GIB,
                }
            ],
        },
        "gateway": {
            "profiles": [{"name": names[0], "engine": {"running": 3, "queued": 1, "kv_cache": 0.5}}]
        },
        "profiles": [
            {
                "name": name,
                "mark": "live" if name == names[0] else "standby",
                "state": "serving" if name == names[0] else "stopped",
                "committed": name == names[0],
                "uptime_s": 120.0 if name == names[0] else None,
                "stall": {"in_flight": 2, "quiet_s": 44.0} if name == names[0] else None,
                "memory": {"ram_bytes": 2 * GIB if name == names[0] else None},
            }
            for name in names
        ],
    }


def speeds_document(names: Sequence[str] = ("aeon",)) -> dict[str, Any]:
    """Return an answer to `speeds`: a loss of speed, two alerts, a message that waits."""
    decode = SeriesSpeed(
        series=Series.DECODE,
        phase="regressed",
        rate=27.0,
        baseline=41.0,
        band=1.5,
        change=-0.34,
        tokens_per_step=2.0,
    )
    prefill = decode.replaced(series=Series.PREFILL, phase="healthy", tokens_per_step=1.0)
    delivery = DeliveryReport(
        enabled=True,
        targets=1,
        waiting=2,
        dead=1,
        oldest_s=90.0,
        heartbeat_set=True,
        heartbeat_s=14.0,
        attempts={"phone": {"sent": 5, "retry": 2, "refused": 0}},
    )
    return {
        "profiles": {
            name: msgspec.to_builtins(
                SpeedReport(
                    profile=name,
                    series=(decode, prefill),
                    last_valid_unix_s=NOW_UNIX_S - 600,
                    ttft_s=0.4,
                    quality_pass_rate=0.875,
                )
            )
            for name in names
        },
        "trouble": [],
        "alerts": {
            "alerts": [{"severity": "critical"}, {"severity": "warning"}, {"severity": "warning"}],
            "left_off": 3,
            "silences": [{"id": 1}],
            "delivery": as_json(asdict(delivery)),
        },
    }


def gpus_document() -> dict[str, Any]:
    """Return an answer to `gpus`: one GPU, which is too hot."""
    evidence = GpuEvidence(
        uuid="GPU-1",
        sm_clock_mhz=1200,
        power_w=301.5,
        temperature_c=88,
        throttle_reasons=("sw_thermal_slowdown",),
        energy_j=123456.5,
    )
    health = GpuHealth(index=0, uuid="GPU-1", name="RTX 3090", busy_share=0.9, uncorrected_errors=0)
    found: dict[str, Any] = as_json(
        asdict(
            BoxGpus(
                taken_s=1.0,
                gpus=(GpuSample(index=0, evidence=evidence),),
                state=GpuState.OK,
                health=(health,),
            )
        )
    )
    return found


def counters_document(names: Sequence[str] = ("aeon",)) -> dict[str, Any]:
    """Return an answer to `counters`: a held stream of each profile, a switch and a failed one."""
    clock = SteppedClock()
    meter = Meter(clock)
    for name in names:
        request = meter.begin(name, None)
        clock.now_s += 25.0
        request.sent()
        for gap_s in (0.2, 0.03, 0.03):
            clock.now_s += gap_s
            request.chunk(100)
        request.end(200, STREAM)
        meter.begin_sent(name, None)
    clock.now_s += 3.0
    tally = OperationTally()
    for outcome, phases_ms in (
        (Outcome.DONE, {"preflight": 8.5, "load": 20_000.0}),
        (Outcome.ROLLED_BACK, {"preflight": 9.0, "load": 99.0, "roll-back load": 4000.0}),
    ):
        tally.add(finished(Kind.SWITCH, outcome, phases_ms))
    tally.add(finished(Kind.REPAIR, Outcome.DONE, {"load": 1.0}))
    found: dict[str, Any] = as_json({"gateway": meter.document(), "operations": tally.document()})
    return found


def finished(kind: Kind, outcome: Outcome, phases_ms: dict[str, float]) -> Finished:
    """Return an operation that has ended."""
    operation = Operation(
        id=1,
        kind=kind,
        target=("aeon",),
        goal=Goal(),
        boot_id="b",
        requested_by="ana",
        began_unix_s=1.0,
    )
    return Finished(
        operation=operation,
        outcome=outcome,
        message="",
        finished_unix_s=2.0,
        phases_ms=phases_ms,
    )


class SteppedClock:
    """Clock that goes when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def busy_box(names: Sequence[str] = ("aeon", "genesis")) -> BoxDocuments:
    """Return the documents of a busy box, all of them fresh."""
    return BoxDocuments(
        unix_s=NOW_UNIX_S,
        status=as_status(status_document(names)),
        status_age_s=0.5,
        speeds=speeds_document(names),
        speeds_age_s=1.0,
        gpus=gpus_document(),
        gpus_age_s=0.2,
    )


def engine_pages(**texts: str) -> EnginePages:
    """Return complete pages of engines."""
    return EnginePages(states=dict.fromkeys(texts, "complete"), texts=texts)

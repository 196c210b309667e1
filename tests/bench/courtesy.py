"""Delay of real requests by probes: ``python -m tests.bench.courtesy``, or ``make bench-courtesy``.

A real engine (llama.cpp with SmolLM2 on the CPU, one slot), the gateway's process, and the prober,
which begins one probe after another. Requests of a client arrive at random moments:

1. while probes go on: a request that meets one at the engine counts. As in the health agent, whose
   schedule waits 30 s after a probe that yielded, the prober begins no other meanwhile
2. at once after it, while no probe goes on: the control
3. every fourth time one more, beside which the prober tries to begin a probe every 20 ms until its
   response is whole: each try has to be refused. It counts for overlaps only, since the tries take
   CPU time that the engine wants

Delay is the time to the first token of the former, less the median of the nine controls that are
nearest in time, so that drift of the machine is in neither. All are short completions with a
salt in front: the engine's one slot has no beginning of any in its prefix cache, neither after a probe
nor after another request, and the evaluation of their own few tokens, which varies by a tenth from
request to request, adds little to what a request waits for the engine. Between gateway and engine stands a front that notes what the engine is
sent (`engine_front`).

The last line is JSON: ``probes`` (prompts that the prober asked), ``yielded`` (those of them that a
request ended), ``requests`` (that met a probe), ``delay_p50_ms``, ``delay_p99_ms``,
``delay_max_ms``, ``overlaps`` (probes begun while a request was in flight), ``tries`` (probes that the
prober wanted to begin while one was); beside them
``piece_p99_ms`` and ``answer_p99_ms``, the delay by what was at the engine, and
``control_p99_ms``, which the same arithmetic gives for the controls: the noise of the machine.
``wait_p50_ms``, ``wait_p99_ms``, ``wait_max_ms``, ``control_wait_p99_ms`` and, by what was at the engine,
``piece_wait_p99_ms`` and ``answer_wait_p99_ms`` are the same without the evaluation of a request's own
prompt, whose length the engine tells: what a request waits until the engine begins with it.
``evaluation_ratio`` is that evaluation after a probe over the one of the controls, in the median.
``slowest`` explains the five requests with the longest delays: what was at the engine and for how long it had been
there, the tokens of its pieces and the time that the last whole one took, the request's own
evaluation, and ``noise_ms``, how much later the latest of the nine nearest controls was than their median.
``crowded`` are the probes that were ended, or not begun, because other programs used the CPU: beside a busy
core they may be all of them, and no request meets one.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import uvloop

from appliance.gateway.response import ResponseParser
from appliance.gateway.routing_table import STATE_FILE
from appliance.health.clock import SystemHealthClock
from appliance.health.measuring.evidence import EvidenceReader
from appliance.health.measuring.prober import Prober
from appliance.model.gateway import Configuration, Standing, State
from appliance.model.measurements import (
    Probe,
    ProbeKind,
)
from appliance.model.profile import Applied, Endpoint, WarmUp
from appliance.model.words import ProbeOutcome
from appliance.speed.event_stream import EventStreamParser
from appliance.speed.measurement import ObservedStream
from appliance.speed.probe_prompts import CODING_TASKS, prefill_name
from appliance.speed.probe_sizes import ProbeCourse
from appliance.system.applied.manifest import (
    GATEWAY_FILE,
    MANIFEST,
    encode_configuration,
    encode_manifest,
)
from appliance.system.kernel.usage import CpuCounters, process_cpu_s, read_cpu_counters
from appliance.system.lane_client import SocketProbeLane
from appliance.wire.gateway import encode_state
from tests.bench.engine_front import MARK, EngineFront
from tests.bench.machine import percentile
from tests.fakes.unit_specs import made
from tests.programs import MODEL_S, free_port, program, started

NAME: Final = "smol"
_PATH: Final = "/v1/completions"
_CONTROLS: Final = 9
_TRY_AGAIN_S: Final = 0.02
"""Pause of the prober after a busy lane."""
_ROUNDS: Final = 4
"""Rounds for each request that is to meet a probe: other programs may keep probes away."""
_SLOWEST: Final = 5
_TRIED: Final = 4
"""One in so many rounds has a request beside which probes are tried."""
_PREFILL_TOKENS: Final = 512
_OUTPUT_TOKENS: Final = 128
"""Sizes with which pieces and answers take about as long."""
_TARGET_MS: Final = 50.0
_WITH_LANE: Final = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3);"
    " os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1');"
    " os.execv(sys.executable, [sys.executable, '-m', 'appliance.gateway'])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTimes:
    """Times of a client's request."""

    ttft_s: float
    wait_s: float
    """Time to the first token without the evaluation of the request's own prompt, as the engine told it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CourtesySample:
    """Request of a client."""

    at_s: float
    times: ClientTimes
    met: str | None
    """Request of the probe that was at the engine: ``piece`` or ``answer``; None: a control."""
    there_s: float = 0.0
    """Time for which that had been at the engine."""
    piece_tokens: int | None = None
    last_piece_s: float | None = None
    """Time that the last whole piece took; None: none had ended."""


class ProbeLoop:
    """Loop of the prober: one course after another, while it may."""

    def __init__(self, prober: Prober, profile: Applied) -> None:
        self._prober = prober
        self._profile = profile
        self._may = asyncio.Event()
        self.probes: list[Probe] = []
        self.idle = asyncio.Event()
        self.long_prompt = ""
        """Name of the long prompt, with the size of its pieces."""
        self.tries = 0
        """Count of probes that the lane refused."""

    async def warm_up(self) -> None:
        """Warm the engine up, and find the size of pieces."""
        for task in tuple(CODING_TASKS)[:2]:
            course = ProbeCourse(kind=ProbeKind.WARM_UP, prompts=(task,), output_tokens=32)
            await self._prober.probe(self._profile, course)
        pieces = self._prober.piece_tokens(self._profile)
        self.long_prompt = prefill_name(_PREFILL_TOKENS, pieces)

    def piece_tokens(self) -> int | None:
        return self._prober.piece_tokens(self._profile)

    def resume(self) -> None:
        self._may.set()

    def stop_soon(self) -> None:
        """Begin no further probe."""
        self._may.clear()

    async def pause(self) -> None:
        """Begin no further probe; return when none goes on."""
        self.stop_soon()
        await self.idle.wait()

    async def run(self, seed: int) -> None:
        """Probe for ever."""
        chooser = random.Random(seed)  # noqa: S311 - for repeatable courses
        while True:
            self.idle.set()
            await self._may.wait()
            self.idle.clear()
            tasks = list(CODING_TASKS)
            prompts = (chooser.choice(tasks), self.long_prompt)
            course = ProbeCourse(
                kind=ProbeKind.SCHEDULED,
                prompts=prompts if chooser.random() < 0.5 else prompts[::-1],
                output_tokens=_OUTPUT_TOKENS,
            )
            found = await self._prober.probe(self._profile, course)
            self.probes += found
            if found[-1].outcome is ProbeOutcome.BUSY:
                self.tries += 1
                await asyncio.sleep(_TRY_AGAIN_S)


async def request(port: int, number: int) -> ClientTimes:
    """Send a request of a client, read its whole response, and return its times.

    Args:
        port: Port of the gateway.
        number: Number that no other request has.
    """
    salt = f"{number * 2654435761 % 2**32:08x}"
    body = json.dumps(
        {
            "model": NAME,
            "prompt": f"{salt}: a short sentence",
            "max_tokens": 8,
            "temperature": 0,
            "stream": True,
        }
    ).encode()
    head = f"POST {_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent_s = time.monotonic()
    stream = ObservedStream(sent_s=sent_s)
    response, events = ResponseParser(), EventStreamParser()
    writer.write(head.encode() + MARK + b"\r\n\r\n" + body)
    try:
        async with asyncio.timeout(120):
            while not response.complete:
                data = await reader.read(1 << 16)
                if not data:
                    break
                response.feed(data)
                for event in events.feed(response.take_body()):
                    stream.take(event, time.monotonic())
    finally:
        writer.close()
        await writer.wait_closed()
    head_read, first_s = response.head, stream.first_s
    prefill_s = None if stream.timings is None else stream.timings.prefill_s
    if head_read is None or head_read.status != 200 or first_s is None or prefill_s is None:
        sys.exit("no figures: a request of a client failed")
    ttft_s = first_s - sent_s
    return ClientTimes(ttft_s=ttft_s, wait_s=ttft_s - prefill_s)


async def measure(
    front: EngineFront, probing: ProbeLoop, port: int, options: argparse.Namespace
) -> list[CourtesySample]:
    """Return samples with as many requests that met a probe as wanted."""
    chooser = random.Random(options.seed)  # noqa: S311
    samples: list[CourtesySample] = []
    met = number = rounds = 0
    end_s = time.monotonic() + options.seconds
    while met < options.requests and rounds < _ROUNDS * options.requests:
        if time.monotonic() > end_s:
            break
        probing.resume()
        await asyncio.sleep(chooser.uniform(0.0, options.pause))
        flight = front.probe
        kind = None if flight is None else "piece" if flight.is_piece else "answer"
        at_s = time.monotonic()
        sample = CourtesySample(
            at_s=at_s,
            times=ClientTimes(ttft_s=0.0, wait_s=0.0),
            met=kind,
            there_s=0.0 if flight is None else at_s - flight.began_s,
            piece_tokens=probing.piece_tokens(),
            last_piece_s=front.last_piece_s,
        )
        probing.stop_soon()
        number += 1
        times = await request(port, number)
        await probing.pause()
        if kind is not None:
            met += 1
            samples.append(replace(sample, times=times))
        number += 1
        at_s = time.monotonic()
        times = await request(port, number)
        samples.append(CourtesySample(at_s=at_s, times=times, met=None))
        rounds += 1
        if not rounds % _TRIED:
            number += 1
            probing.resume()
            await request(port, number)
            await probing.pause()
    return samples


def whole(times: ClientTimes) -> float:
    """Return the time to the first token in seconds."""
    return times.ttft_s


def waited(times: ClientTimes) -> float:
    """Return the time before the engine began with the request in seconds."""
    return times.wait_s


def delays_ms(
    samples: Sequence[CourtesySample], of: str | None, time_of: Callable[[ClientTimes], float]
) -> list[float]:
    """Return the delays of the requests that met a probe at `of`; None: of the controls."""
    found = []
    for sample in samples:
        near = _near(samples, sample) if sample.met == of else []
        if near:
            usual_s = statistics.median(time_of(c) for c in near)
            found.append((time_of(sample.times) - usual_s) * 1000)
    return found


def _near(samples: Sequence[CourtesySample], sample: CourtesySample) -> list[ClientTimes]:
    """Return the times of the controls that are nearest to a sample."""
    others = (c for c in samples if c.met is None and c is not sample)
    near = sorted(others, key=lambda c: abs(c.at_s - sample.at_s))[:_CONTROLS]
    return [c.times for c in near]


def slowest(samples: Sequence[CourtesySample]) -> list[dict[str, object]]:
    """Return the requests with the longest delays, and what explains each."""
    found = []
    for sample in samples:
        near = _near(samples, sample)
        if sample.met is None or not near:
            continue
        usual_s = statistics.median(c.ttft_s for c in near)
        found.append(
            {
                "delay_ms": round((sample.times.ttft_s - usual_s) * 1000, 1),
                "met": sample.met,
                "there_ms": round(sample.there_s * 1000, 1),
                "piece_tokens": sample.piece_tokens,
                "last_piece_ms": sample.last_piece_s and round(sample.last_piece_s * 1000, 1),
                "evaluation_ms": round((sample.times.ttft_s - sample.times.wait_s) * 1000, 1),
                "usual_evaluation_ms": round(
                    statistics.median(c.ttft_s - c.wait_s for c in near) * 1000, 1
                ),
                "noise_ms": round((max(c.ttft_s for c in near) - usual_s) * 1000, 1),
            }
        )
    return sorted(found, key=lambda one: -float(str(one["delay_ms"])))[:_SLOWEST]


@contextmanager
def gateway(folder: Path, profile: Applied) -> Iterator[tuple[int, Path]]:
    """The gateway's process with a lane; its port, and the path of the lane."""
    port = free_port()
    for place in ("applied", "run", "state"):
        (folder / place).mkdir()
    configuration = Configuration(port=port, state_dir=str(folder / "state"), log_level="warning")
    (folder / "applied" / GATEWAY_FILE).write_text(encode_configuration(configuration, "1"))
    (folder / "applied" / MANIFEST).write_text(encode_manifest({NAME: profile}, "1"))
    state = State(standings={NAME: Standing.SERVING}, committed=(NAME,))
    (folder / "run" / STATE_FILE).write_text(json.dumps(encode_state(state)))
    environment = {
        **os.environ,
        "APPLIANCE_APPLIED_DIR": str(folder / "applied"),
        "RUNTIME_DIRECTORY": str(folder / "run"),
    }
    path = folder / "lane.sock"
    with socket.socket(socket.AF_UNIX) as lane:
        lane.bind(str(path))
        lane.listen()
        command = [sys.executable, "-c", _WITH_LANE, str(lane.fileno())]
        process = subprocess.Popen(command, env=environment, pass_fds=[lane.fileno()])
        try:
            yield port, path
        finally:
            process.terminate()
            process.wait(timeout=15)


async def _answering(port: int) -> None:
    """Wait until a server answers a request for its models."""
    async with asyncio.timeout(MODEL_S):
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(
                    b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                head = await reader.read()
                writer.close()
                if b" 200 " in head[:20] and NAME.encode() in head:
                    return
            await asyncio.sleep(0.1)


async def _run(
    engine_port: int, engine_pid: int, folder: Path, options: argparse.Namespace
) -> Mapping[str, object]:
    await _answering(engine_port)
    front = EngineFront(engine_port)
    await front.open()
    profile = made(
        NAME,
        engine="xllamacpp",
        endpoint=Endpoint(port=front.port),
        warm_up=WarmUp.CHAT,
        served=(NAME,),
    )
    with gateway(folder, profile) as (port, path):
        await _answering(port)
        clock = SystemHealthClock()
        evidence = EvidenceReader(_no_gpus, clock, lambda _: _counters(engine_pid))
        probing = ProbeLoop(Prober(SocketProbeLane(path), evidence, clock), profile)
        await request(port, 0)
        await probing.warm_up()
        running = asyncio.create_task(probing.run(options.seed))
        try:
            samples = await measure(front, probing, port, options)
            await probing.pause()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            front.close()
    beside = {"tries": probing.tries, "long_prompt": probing.long_prompt}
    return _figures(front, probing.probes, samples) | beside


async def _no_gpus() -> None:
    return None


def _counters(engine_pid: int) -> CpuCounters:
    """Return the counters of the machine and of the engine, which has no unit here."""
    return replace(read_cpu_counters(""), unit_s=process_cpu_s(engine_pid))


def _figures(
    front: EngineFront, probes: Sequence[Probe], samples: Sequence[CourtesySample]
) -> dict[str, object]:
    of = {kind: delays_ms(samples, kind, whole) for kind in ("piece", "answer", None)}
    waits_of = {kind: delays_ms(samples, kind, waited) for kind in ("piece", "answer")}
    waits = [*waits_of["piece"], *waits_of["answer"]]
    delays = [*of["piece"], *of["answer"]]
    outcomes = [probe.outcome for probe in probes]
    crowded = outcomes.count(ProbeOutcome.CROWDED)
    if not delays and not crowded:
        sys.exit("no figures: no request met a probe")
    valid = {one.value: outcomes.count(one) for one in ProbeOutcome if one in outcomes}
    return {
        "probes": sum(outcome is not ProbeOutcome.BUSY for outcome in outcomes),
        "yielded": outcomes.count(ProbeOutcome.YIELDED),
        "crowded": crowded,
        "requests": len(delays),
        "delay_p50_ms": _ms(delays, 0.5),
        "delay_p99_ms": _ms(delays, 0.99),
        "delay_max_ms": _ms(delays, 1.0),
        "overlaps": front.overlaps,
        "piece_p99_ms": _ms(of["piece"], 0.99),
        "answer_p99_ms": _ms(of["answer"], 0.99),
        "control_p99_ms": _ms(of[None], 0.99),
        "control_ttft_ms": _ms([s.times.ttft_s * 1000 for s in samples if s.met is None], 0.5),
        "wait_p50_ms": _ms(waits, 0.5),
        "wait_p99_ms": _ms(waits, 0.99),
        "wait_max_ms": _ms(waits, 1.0),
        "piece_wait_p99_ms": _ms(waits_of["piece"], 0.99),
        "answer_wait_p99_ms": _ms(waits_of["answer"], 0.99),
        "control_wait_p99_ms": _ms(delays_ms(samples, None, waited), 0.99),
        "evaluation_ratio": round(
            _evaluation_s(samples, met=True) / _evaluation_s(samples, met=False), 2
        )
        if delays
        else None,
        "slowest": slowest(samples),
        "lane_requests": front.probes,
        "outcomes": valid,
    }


def _evaluation_s(samples: Sequence[CourtesySample], *, met: bool) -> float:
    times = (sample.times for sample in samples if (sample.met is not None) is met)
    return statistics.median(one.ttft_s - one.wait_s for one in times)


def _ms(values: list[float], share: float) -> float | None:
    return round(percentile(values, share), 1) if values else None


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the figures; 1: a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=300, help="that meet a probe")
    parser.add_argument("--seconds", type=float, default=1800.0, help="at most")
    parser.add_argument(
        "--pause", type=float, default=2.0, help="most seconds of probing before a request"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    port = free_port()
    settings = ("--ctx", 4096, "--parallel", 1, "--threads", options.threads, "--alias", NAME)
    argv = program("embedded", "--port", port, "--model", "smollm2", *settings)
    # Its log goes nowhere: nobody reads a pipe here.
    quiet = ["sh", "-c", 'exec "$@" > /dev/null 2>&1', "sh", *argv]
    with tempfile.TemporaryDirectory() as folder, started(quiet) as engine:
        work = _run(port, engine.pid, Path(folder), options)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures = runner.run(work)
    sys.stdout.write(json.dumps(figures) + "\n")
    p99_ms = figures["delay_p99_ms"]
    assert p99_ms is None or isinstance(p99_ms, float)
    is_late = p99_ms is not None and p99_ms > _TARGET_MS
    return 1 if is_late or figures["overlaps"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

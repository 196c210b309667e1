"""Cost of the gateway: ``python -m tests.bench.gateway``, root not needed.

One client (wrk) and one engine that takes no time for all: directly, through nginx, through the
gateway, through a relay of uvicorn and httpx. They take turns, and figures that compare are
medians over the turns, because whatever else the machine does then disturbs all of them alike.
Where it may, all of it runs before everything else of the machine, client and engine too.

latency     one connection, small answers: p50 and p99, and what the gateway adds to direct ones;
            all on one core, of which only one process has anything to do at a time: on several,
            it is measured how fast a machine wakes up another core
throughput  16 connections: requests/s, and as ratios to nginx and to uvicorn + httpx
memory      after the start and after 100,000 requests, and of clients that read a byte a second
streams     256 at once, 50 events/s each: how late events are beyond direct ones, each checked
CPU         of the gateway's process over nginx's, for a request (in the turns of throughput) and for
            a chunk of such streams, none of which nginx keeps back either
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.contestants import engine, gateway, nginx, plain_relay
from tests.bench.debian import Tools, tools
from tests.bench.load import (
    Burst,
    Contestant,
    burst,
    read_slowly,
    rss_mib,
    slow_clients,
    streamed,
)
from tests.bench.machine import say
from tests.bench.turns import Run, Turns, take_turns

REQUESTS = 100_000
STREAMS = 256
EVERY_US = 20_000
SLOW_CLIENTS = 8
_NICE = -15


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Bench with every contestant running, and its duration."""

    asked: argparse.Namespace
    tools: Tools
    up: Mapping[str, Contestant]
    """direct, nginx, ours and httpx; and unbuffered, an nginx that streams."""

    @property
    def pid(self) -> int:
        """The gateway's."""
        return self.up["ours"].pid

    def turns(self, connections: int, *names: str) -> Turns[Burst]:
        """Return the runs of these contestants."""
        run = partial(burst, self.tools, connections=connections, seconds=self.asked.turn_seconds)
        return take_turns(self.asked.turns, {name: partial(run, self.up[name]) for name in names})

    def figures(self) -> dict[str, float]:
        """Return all figures."""
        fresh_mib = rss_mib(self.pid)
        with on_one_core(contestant.pid for contestant in self.up.values()):
            one = self.turns(1, "direct", "nginx", "ours")
        many = self.turns(16, "nginx", "ours", "httpx")
        self._top_up(one.requests("ours") + many.requests("ours"))
        used_mib = rss_mib(self.pid)
        say(f"memory: {fresh_mib:.1f} MiB, after {REQUESTS} requests {used_mib:.1f}")
        if failed := one.failed() + many.failed():
            say(f"{failed} requests failed")
        return {
            **_latency(one),
            **_throughput(many),
            **self._streams(),
            "cpu_request_ratio": _cpu_request_ratio(many),
            "cpu_chunk_ratio": self._cpu_chunk_ratio(),
            "rss_mib": max(used_mib, rss_mib(self.pid)),
            "rss_growth_percent": (used_mib / fresh_mib - 1) * 100,
            "slow_client_mib": self._slow(),
        }

    def _top_up(self, served: int) -> None:
        """Ask the gateway until it has served as many as its memory is judged by."""
        while served < REQUESTS:
            served += burst(self.tools, self.up["ours"], connections=16, seconds=2).requests

    def _streams(self) -> dict[str, float]:
        """Streams read directly, then through the gateway."""
        read = partial(streamed, streams=self.asked.streams, every_us=EVERY_US)
        chunks = _chunks(self.asked.stream_seconds)
        direct = read(self.up["direct"], chunks=max(1, chunks // 3))
        ours = read(self.up["ours"], chunks=chunks)
        say(f"streams: direct {direct}")
        say(f"streams: ours {ours}")
        return {
            "sse_streams": ours.streams,
            "sse_corrupt": ours.corrupt,
            "sse_added_p99_ms": ours.p99_ms - direct.p99_ms,
        }

    def _cpu_chunk_ratio(self) -> float:
        """CPU time for a chunk of a stream, over that of an nginx that buffers none."""
        read = partial(
            streamed,
            streams=self.asked.streams,
            chunks=_chunks(self.asked.chunk_seconds),
            every_us=EVERY_US,
        )
        names = ("unbuffered", "ours")
        turns = take_turns(
            self.asked.chunk_turns, {name: partial(read, self.up[name]) for name in names}
        )
        if corrupt := sum(run.corrupt for runs in turns.runs.values() for run in runs):
            say(f"{corrupt} streams were corrupt")
        say(f"CPU a chunk: {_each(turns, lambda run: run.cpu_us_per_event)}")
        return turns.ratio("ours", "unbuffered", lambda run: run.cpu_us_per_event)

    def _slow(self) -> float:
        """Return the gateway's memory for a client that hardly reads an endless stream."""
        before = rss_mib(self.pid)
        with slow_clients(self.up["ours"].port, SLOW_CLIENTS) as clients:
            read_slowly(clients, seconds=self.asked.slow_seconds)
            return max(0.0, rss_mib(self.pid) - before) / SLOW_CLIENTS


def main() -> int:
    """Print the figures, the last line as JSON."""
    asked = _options().parse_args()
    found = tools()
    go_before_others()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        direct = stack.enter_context(engine())
        up = {
            "direct": direct,
            "nginx": stack.enter_context(nginx(found, direct.port, folder)),
            "ours": stack.enter_context(gateway(direct.port, folder)),
            "httpx": stack.enter_context(plain_relay(direct.port)),
            "unbuffered": stack.enter_context(
                nginx(found, direct.port, folder / "unbuffered", buffering=False)
            ),
        }
        figures = Bench(asked=asked, tools=found, up=up).figures()
    rounded = {name: round(value, 2) for name, value in figures.items()}
    sys.stdout.write(f"{json.dumps(rounded)}\n")
    return 0


def go_before_others() -> None:
    """Be scheduled first, with all children; only root may, and others measure what is left.

    Both are needed: kernels that group processes by session let niceness count within one alone.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        Path("/proc/self/autogroup").write_text(str(_NICE), encoding="ascii")


@contextmanager
def on_one_core(pids: Iterable[int]) -> Iterator[None]:
    """Have these processes, this one and its children to come run on the same core."""
    everybody = (0, *pids)
    allowed = os.sched_getaffinity(0)
    for pid in everybody:
        os.sched_setaffinity(pid, {min(allowed)})
    yield
    for pid in everybody:
        os.sched_setaffinity(pid, allowed)


def _latency(one: Turns[Burst]) -> dict[str, float]:
    say(f"p99: {_each(one, lambda run: run.p99_us)}")
    return {
        "direct_p50_us": one.median("direct", lambda run: run.p50_us),
        "nginx_p50_us": one.median("nginx", lambda run: run.p50_us),
        "ours_p50_us": one.median("ours", lambda run: run.p50_us),
        "added_p50_us": one.difference("ours", "direct", lambda run: run.p50_us),
        "added_p99_us": one.difference("ours", "direct", lambda run: run.p99_us),
    }


def _throughput(many: Turns[Burst]) -> dict[str, float]:
    return {
        "rps_nginx": many.median("nginx", lambda run: run.requests_s),
        "rps_ours": many.median("ours", lambda run: run.requests_s),
        "rps_httpx": many.median("httpx", lambda run: run.requests_s),
        "ratio_nginx": many.ratio("ours", "nginx", lambda run: run.requests_s),
        "ratio_httpx": many.ratio("ours", "httpx", lambda run: run.requests_s),
    }


def _cpu_request_ratio(many: Turns[Burst]) -> float:
    say(f"CPU a request: {_each(many, lambda run: run.cpu_us_per_request)}")
    return many.ratio("ours", "nginx", lambda run: run.cpu_us_per_request)


def _each(turns: Turns[Run], microseconds: Callable[[Run], float]) -> str:
    """The median of every contestant, as text."""
    return ", ".join(f"{n} {turns.median(n, microseconds):.1f} us" for n in turns.runs)


def _chunks(seconds: int) -> int:
    """Return how many chunks of one stream take so long."""
    return seconds * 1_000_000 // EVERY_US


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=15, help="of each contestant (15)")
    parser.add_argument("--turn-seconds", type=int, default=1, help="of one turn (1)")
    parser.add_argument("--streams", type=int, default=STREAMS, help=f"at once ({STREAMS})")
    parser.add_argument("--stream-seconds", type=int, default=30, help="of the streams (30)")
    parser.add_argument("--chunk-turns", type=int, default=7, help="of streams, for CPU time (7)")
    parser.add_argument("--chunk-seconds", type=int, default=3, help="of one such turn (3)")
    parser.add_argument("--slow-seconds", type=int, default=15, help="of slow clients (15)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

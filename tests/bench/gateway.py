"""What the gateway costs: ``python -m tests.bench.gateway``, root not needed.

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
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.contestants import Contestant, engine, gateway, nginx, plain_relay
from tests.bench.debian import Tools, tools
from tests.bench.load import burst, read_slowly, rss_mib, slow_clients, streamed
from tests.bench.machine import say
from tests.bench.turns import Turns, take_turns

REQUESTS = 100_000
STREAMS = 256
EVERY_US = 20_000
SLOW_CLIENTS = 8
_NICE = -15


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everybody up, and how long to measure."""

    asked: argparse.Namespace
    tools: Tools
    up: Mapping[str, Contestant]
    """direct, nginx, ours and httpx."""

    @property
    def pid(self) -> int:
        """The gateway's."""
        return self.up["ours"].pid

    def port(self, name: str) -> int:
        """Where one of them listens."""
        return self.up[name].port

    def turns(self, connections: int, *names: str) -> Turns:
        """Those contestants' runs."""
        run = partial(burst, self.tools, connections=connections, seconds=self.asked.turn_seconds)
        return take_turns(self.asked.turns, {name: partial(run, self.port(name)) for name in names})

    def figures(self) -> dict[str, float]:
        """All of them."""
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
            "rss_mib": max(used_mib, rss_mib(self.pid)),
            "rss_growth_percent": (used_mib / fresh_mib - 1) * 100,
            "slow_client_mib": self._slow(),
        }

    def _top_up(self, served: int) -> None:
        """Ask the gateway until it has served as many as its memory is judged by."""
        while served < REQUESTS:
            served += burst(self.tools, self.port("ours"), connections=16, seconds=2).requests

    def _streams(self) -> dict[str, float]:
        """Streams read directly, then through the gateway."""
        read = partial(streamed, streams=self.asked.streams, every_us=EVERY_US)
        chunks = self.asked.stream_seconds * 1_000_000 // EVERY_US
        direct = read(self.port("direct"), chunks=max(1, chunks // 3))
        ours = read(self.port("ours"), chunks=chunks)
        say(f"streams: direct {direct}")
        say(f"streams: ours {ours}")
        return {
            "sse_streams": ours.streams,
            "sse_corrupt": ours.corrupt,
            "sse_added_p99_ms": ours.p99_ms - direct.p99_ms,
        }

    def _slow(self) -> float:
        """What a client that hardly reads an endless stream makes the gateway hold."""
        before = rss_mib(self.pid)
        with slow_clients(self.port("ours"), SLOW_CLIENTS) as clients:
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


def _latency(one: Turns) -> dict[str, float]:
    say(f"p99: {', '.join(f'{n} {one.median(n, lambda r: r.p99_us):.0f} us' for n in one.runs)}")
    return {
        "direct_p50_us": one.median("direct", lambda run: run.p50_us),
        "nginx_p50_us": one.median("nginx", lambda run: run.p50_us),
        "ours_p50_us": one.median("ours", lambda run: run.p50_us),
        "added_p50_us": one.difference("ours", "direct", lambda run: run.p50_us),
        "added_p99_us": one.difference("ours", "direct", lambda run: run.p99_us),
    }


def _throughput(many: Turns) -> dict[str, float]:
    return {
        "rps_nginx": many.median("nginx", lambda run: run.requests_s),
        "rps_ours": many.median("ours", lambda run: run.requests_s),
        "rps_httpx": many.median("httpx", lambda run: run.requests_s),
        "ratio_nginx": many.ratio("ours", "nginx", lambda run: run.requests_s),
        "ratio_httpx": many.ratio("ours", "httpx", lambda run: run.requests_s),
    }


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=15, help="of each contestant (15)")
    parser.add_argument("--turn-seconds", type=int, default=1, help="of one turn (1)")
    parser.add_argument("--streams", type=int, default=STREAMS, help=f"at once ({STREAMS})")
    parser.add_argument("--stream-seconds", type=int, default=30, help="of the streams (30)")
    parser.add_argument("--slow-seconds", type=int, default=15, help="of slow clients (15)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Cost of headers of model files: ``python -m tests.bench.headers``.

A GGUF file with a vocabulary of 152,064 tokens and as many merges is read ten times. Then, each in a process
of its own, the files of a model that were made to be expensive, as 200 parts, are checked as the supervisor does
before a switch, while another model is checked every 20 ms. The last line is JSON: ``{"tokens", "header_mib",
"read_ms_p50", "read_ms_max", "attacks": {NAME: {"rss_mib", "s", "told", "other_ms_max", "other_ms_alone"}}}``.
Status 1: an attack had more than 150 MiB, or held another check up by more than a second.
"""

import asyncio
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.system.host import LinuxHost
from appliance.system.model_files.headers import read_gguf
from appliance.system.model_files.locate import HeaderBudget
from tests.fakes.model_files import LLAMA, gguf_header, llama_tensors, text, value, write_gguf
from tests.fakes.profiles import applied

TOKENS = 152_064
ROUNDS = 10
PARTS = 200
MOST_RSS_MIB = 150
MOST_LATER_MS = 1000.0
_OTHER_EVERY_S = 0.02
_LARGE = 30 << 20


def main() -> int:
    """Write the files, read them, and print the figures."""
    if sys.argv[1:]:
        sys.stdout.write(json.dumps(asyncio.run(_attacked(*sys.argv[1:]))) + "\n")
        return 0
    figures: dict[str, Any] = {"tokens": TOKENS, **_large_header()}
    attacks = {name: _attack(name, write) for name, write in ATTACKS.items()}
    sys.stdout.write(json.dumps({**figures, "attacks": attacks}) + "\n")
    return int(
        any(
            found["rss_mib"] > MOST_RSS_MIB
            or found["other_ms_max"] - found["other_ms_alone"] > MOST_LATER_MS
            for found in attacks.values()
        )
    )


def _large_header() -> Mapping[str, float]:
    metadata = {
        **LLAMA,
        "tokenizer.ggml.tokens": [f"token{i}" for i in range(TOKENS)],
        "tokenizer.ggml.merges": [f"to ken{i}" for i in range(TOKENS)],
        "tokenizer.ggml.token_type": [1] * TOKENS,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = write_gguf(Path(folder, "large.gguf"), metadata, llama_tensors(64, experts=8))
        header_bytes = len(gguf_header(metadata, {})[0])
        times_ms = [_read_ms(path) for _ in range(ROUNDS)]
    return {
        "header_mib": round(header_bytes / (1 << 20), 1),
        "read_ms_p50": round(statistics.median(times_ms), 1),
        "read_ms_max": round(max(times_ms), 1),
    }


def _read_ms(path: Path) -> float:
    began = time.perf_counter()
    read_gguf(path, HeaderBudget())
    return (time.perf_counter() - began) * 1000


# --- models made to be expensive ---------------------------------------------------------


def _gguf(keys: int, entry: Callable[[int], bytes], tensors: int = 0) -> bytes:
    head = [b"GGUF", struct.pack("<IQQ", 3, tensors, keys + 1)]
    head.append(text("general.architecture") + value("llama"))
    return b"".join([*head, *map(entry, range(keys + tensors))])


def _list(kind: int, count: int, size: int) -> Callable[[int], bytes]:
    body = struct.pack("<IIQ", 9, kind, count) + b"\xff" * (count * size)
    return lambda number: text(f"llama.key{number}") + body


def _tensor(number: int) -> bytes:
    return text(f"blk.{number}.w") + struct.pack("<IQIQ", 1, 32, 0, number * 128)


def _json(unit: bytes, size: int = (16 << 20) - 64) -> bytes:
    body = b'{"__metadata__": [' + b",".join([unit] * (size // (len(unit) + 1))) + b"]}"
    return struct.pack("<Q", len(body)) + body


ATTACKS: Mapping[str, Callable[[], tuple[str, bytes]]] = {
    "small lists": lambda: ("gguf", _gguf(_LARGE // 16_430, _list(4, 4096, 4))),
    "lists of bytes": lambda: ("gguf", _gguf(4000, _list(0, 4096, 1))),
    "texts": lambda: (
        "gguf",
        _gguf(1, lambda _: text("k") + struct.pack("<IIQ", 9, 8, _LARGE // 8) + b"\0" * _LARGE),
    ),
    "tensors": lambda: ("gguf", _gguf(0, _tensor, 65_000)),
    "keys": lambda: ("gguf", _gguf(4000, lambda n: text(f"k{n}" * 30) + value("v" * 6000))),
    "objects": lambda: ("safetensors", _json(b'{"":0}')),
    "empty lists": lambda: ("safetensors", _json(b"[]")),
    "long texts": lambda: ("safetensors", _json(b'"' + b"x" * 1000 + b'"')),
    "wide text": lambda: ("safetensors", _json(b'"' + b"x" * 1000 + "🂡".encode() + b'"')),
    "few objects": lambda: ("safetensors", _json(b'{"":0}', 900_000)),
}
"""Names of models, and their kind and the content of each of their parts."""


def _attack(name: str, write: Callable[[], tuple[str, bytes]]) -> Mapping[str, Any]:
    kind, content = write()
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder, f"m-00001-of-{PARTS:05d}.{kind}")
        with first.open("wb") as file:
            file.write(content)
            file.truncate(max(len(content), 64 << 20))
        for number in range(2, PARTS + 1):
            os.link(first, first.with_name(f"m-{number:05d}-of-{PARTS:05d}.{kind}"))
        path = first if kind == "gguf" else first.parent
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.headers", name, str(path)],
            stdout=subprocess.PIPE,
            check=True,
        )
    figures: Mapping[str, Any] = json.loads(done.stdout)
    sys.stderr.write(f"{name}: {figures}\n")
    return figures


async def _attacked(_name: str, path: str) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        other = write_gguf(Path(folder, "other.gguf"), LLAMA, llama_tensors(4))
        host = LinuxHost(gate_dir=Path(folder), unit_dir=Path(folder))
        alone_ms = max([await _check_ms(host, other) for _ in range(20)])
        began = time.perf_counter()
        attack = asyncio.create_task(host.facts(_profile(Path(path))))
        later_ms = [0.0]
        while not attack.done():
            later_ms.append(await _check_ms(host, other))
            await asyncio.sleep(_OTHER_EVERY_S)
        facts = await attack
    return {
        "rss_mib": _peak_mib(),
        "s": round(time.perf_counter() - began, 2),
        "told": facts.model_problem or facts.model.value,
        "other_ms_max": round(max(later_ms), 1),
        "other_ms_alone": round(alone_ms, 1),
    }


def _peak_mib() -> int:
    """Return the largest resident memory of this process; getrusage(2) would tell its parent's."""
    (line,) = (s for s in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in s)
    return int(line.split()[1]) >> 10


async def _check_ms(host: LinuxHost, model: Path) -> float:
    began = time.perf_counter()
    os.utime(model)  # it is read anew
    await host.facts(_profile(model))
    return (time.perf_counter() - began) * 1000


def _profile(model: Path) -> Any:
    engine = "vllm" if model.is_dir() else "llama-server"
    profile = applied("model", "gpu-all")
    return replace(profile, engine=engine, model=str(model), model_path=str(model))


if __name__ == "__main__":
    sys.exit(main())

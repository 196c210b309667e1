"""Caches that the llama.cpp in the wheel allocates for a model of given dimensions.

A file is made that the engine loads: each tensor that it misses, and each whose shape it corrects, is put in
until it is content, so that no table of tensors is needed. Weights are holes of zeros. What it allocates is what
its log says. Runs in a child: ``python -m tests.bench.estimate_engine`` reads one request as JSON from stdin.
"""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MISSING = re.compile(r"tensor '([^']+)' not found")
_SHAPE = re.compile(r"tensor '([^']+)' has wrong shape; expected ([^;]+?), got")
_CACHE = re.compile(r"llama_kv_cache\w*: +\S+ KV buffer size = +([0-9.]+) MiB")
_STATE = re.compile(r"llama_memory_recurrent\w*: +\S+ RS buffer size = +([0-9.]+) MiB")
_OVER = "exiting due to model loading error"
_MEMORY_DONE = "sched_reserve: reserving"
"""Words of the log once the memory is there; a graph that weights of zeros and odd sizes break comes after."""
_LOG = "log"
_MOST_ATTEMPTS = 4000
_ALIGNMENT = 32
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Bytes that the engine allocated, to a hundredth of a MiB."""

    cache_bytes: int
    state_bytes: int


class EngineError(Exception):
    """Model that the engine did not load; `str()` is the end of its log."""


def allocated(
    metadata: Mapping[str, object], *, ctx: int, requests: int = 1, **options: object
) -> Allocated:
    """Return what the engine allocates for a model with this header.

    Args:
        metadata: Whole keys; integers are written as u32, lists by the type of their first entry.
        ctx: Tokens of all requests together.
        requests: Slots.
        options: Further attributes of xllamacpp's CommonParams.
    """
    request = {"metadata": metadata, "ctx": ctx, "requests": requests, "options": options}
    with tempfile.TemporaryDirectory() as folder:
        log = _followed(folder, json.dumps(request))
    if _MEMORY_DONE not in log:
        raise EngineError(log[-3000:])
    return Allocated(
        cache_bytes=_summed(_CACHE, log),
        state_bytes=_summed(_STATE, log),
    )


def _followed(folder: str, request: str) -> str:
    """Return the log of a child once the memory is there, or once it has ended."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.estimate_engine", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        text=True,
    )
    assert child.stdin is not None
    with child.stdin as pipe:
        pipe.write(request)
    path, log = Path(folder, _LOG), ""
    end = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < end and _MEMORY_DONE not in log:
        ended = child.poll() is not None
        log = path.read_text(errors="replace") if path.exists() else ""
        if ended:
            break
        time.sleep(0.05)  # real time: another process loads
    child.kill()
    child.wait()
    return log


def _summed(pattern: re.Pattern[str], log: str) -> int:
    return round(sum(map(float, pattern.findall(log))) * (1 << 20))


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(item: object) -> bytes:
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<Ii", 5, item) if item < 0 else struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + _text(item)
    assert isinstance(item, list)
    signed = all(type(entry) is int for entry in item)  # lists of counts are signed
    entries = [struct.pack("<Ii", 5, e) if signed else _value(e) for e in item]
    kind = entries[0][:4]
    return (
        struct.pack("<I", 9)
        + kind
        + struct.pack("<Q", len(entries))
        + b"".join(e[4:] for e in entries)
    )


def _write(path: Path, metadata: Mapping[str, object], tensors: Mapping[str, list[int]]) -> None:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    parts += [_text(key) + _value(item) for key, item in metadata.items()]
    place = 0
    for name, shape in tensors.items():
        parts.append(_text(name) + struct.pack("<I", len(shape)))
        parts.append(struct.pack(f"<{len(shape)}QIQ", *shape, 0, place))
        count = 4
        for one in shape:
            count *= one
        place += -(-count // _ALIGNMENT) * _ALIGNMENT
    header = b"".join(parts)
    with path.open("wb") as file:
        file.write(header + b"\0" * (-len(header) % _ALIGNMENT))
        file.truncate(file.tell() + place)


_VOCABULARY = [f"<{i}>" for i in range(32)]
_TOKENIZER = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": _VOCABULARY,
    "tokenizer.ggml.scores": [0.0] * len(_VOCABULARY),
    "tokenizer.ggml.token_type": [1] * len(_VOCABULARY),
}


def _load(request: Mapping[str, object], folder: Path, log: Path) -> None:
    """Load the model, adding tensors until the engine is content; leaves its log in a file."""
    import xllamacpp  # noqa: PLC0415 - a child's own

    metadata = {**_TOKENIZER, **dict(request["metadata"])}  # type: ignore[call-overload]
    tensors: dict[str, list[int]] = {}
    path = folder / "m.gguf"
    for _ in range(_MOST_ATTEMPTS):
        _write(path, metadata, tensors)
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_parallel = int(request["requests"])  # type: ignore[call-overload]
        parameters.n_ctx = int(request["ctx"])  # type: ignore[call-overload]
        for name, value in {
            "verbosity": 4,
            "warmup": False,
            "fit_params": False,
            "offline": True,
            "ui": False,
            "cache_ram_mib": 0,
            "hostnames": ["127.0.0.1"],
            "port": 0,
        }.items():
            setattr(parameters, name, value)
        for name, value in dict(request["options"]).items():  # type: ignore[call-overload]
            setattr(parameters, name, value)
        log.write_bytes(b"")
        try:
            xllamacpp.Server(parameters)
        except RuntimeError:
            text = _told(log)
            missing, wrong = _MISSING.search(text), _SHAPE.search(text)
            shape = [] if wrong is None else [int(n) for n in re.findall(r"\d+", wrong[2])]
            if wrong is not None and tensors.get(wrong[1]) != shape:
                tensors[wrong[1]] = shape
            elif missing is not None and missing[1] not in tensors:
                tensors[missing[1]] = [1]
            else:
                raise
        else:
            return
    raise RuntimeError("the model needs too many tensors")


def _told(log: Path) -> str:
    """Return the log of a load that failed, whose last lines a thread of the engine writes late."""
    text = ""
    for _ in range(100):
        text = log.read_text(errors="replace")
        if _OVER in text:
            break
        time.sleep(0.01)
    return text


def main(folder: str) -> int:
    """Answer one request: leave the engine's log in the folder."""
    request = json.load(sys.stdin)
    log = Path(folder, _LOG)
    told = os.dup(2)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    try:
        _load(request, Path(folder), log)
    except RuntimeError as error:
        os.write(told, f"{error}\n".encode())
        _told(log)
        os._exit(1)
    time.sleep(0.3)  # a thread of the engine writes its log
    os._exit(0)  # the server's threads would keep the process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

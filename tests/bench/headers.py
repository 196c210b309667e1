"""Time to read the header of a large model: ``python -m tests.bench.headers``.

A GGUF file with a vocabulary of 152,064 tokens and as many merges, read ten times. The last line
is JSON: ``{"tokens", "header_mib", "read_ms_p50", "read_ms_max"}``.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from appliance.adapters.model_files.gguf import read_gguf
from tests.fakes.model_files import LLAMA, gguf_header, llama_tensors, write_gguf

TOKENS = 152_064
ROUNDS = 10


def main() -> int:
    """Write the file, read it, and print the figures."""
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
    figures = {
        "tokens": TOKENS,
        "header_mib": round(header_bytes / (1 << 20), 1),
        "read_ms_p50": round(statistics.median(times_ms), 1),
        "read_ms_max": round(max(times_ms), 1),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


def _read_ms(path: Path) -> float:
    began = time.perf_counter()
    read_gguf(path)
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())

"""Fuzz the relay: ``python -m tests.fuzz --runs 1000000``.

Guided by coverage of the gateway's own code (atheris, which is libFuzzer). What it finds new is
kept in .cache/fuzz/corpus for the next time; an input that breaks something is left in .cache/fuzz
as a file named crash-…, and played again with ``python -m tests.fuzz --replay FILE``.
"""

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.inputs import HEAD, MOST_BYTES, read, seeds, words

FOLDER = Path(".cache/fuzz")
EXIT_SKIPPED = 77
_INSTRUMENTED = ["appliance.gateway", "appliance.routing"]
_SLOWEST_S = 10
_MEMORY_MIB = 512


def main() -> int:
    """Fuzz; does not return when it does."""
    asked = _options().parse_args()
    if asked.replay:
        _replay(asked.replay)
        return 0
    if asked.workers > 1:
        return _share(asked)
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        sys.stderr.write("atheris has no wheel for this Python: nothing is fuzzed\n")
        return EXIT_SKIPPED
    with atheris.instrument_imports(include=_INSTRUMENTED):
        targets = importlib.import_module("tests.fuzz.targets")
    stage = targets.Stage()
    atheris.Setup(["fuzz", *_flags(asked, asked.folder)], lambda data: stage.play(read(data)))
    atheris.Fuzz()
    return 0


def _share(asked: argparse.Namespace) -> int:
    """Have several processes do it, each its part, with one corpus; the worst of their statuses."""
    command = [sys.executable, "-m", "tests.fuzz", "--workers", "1", "--folder", str(asked.folder)]
    command += ["--seconds", str(asked.seconds), "--runs", str(-(-asked.runs // asked.workers))]
    workers = [
        subprocess.Popen([*command, "--seed", str(asked.seed + number)])
        for number in range(asked.workers)
    ]
    return max(abs(worker.wait()) for worker in workers)


def _replay(file: Path) -> None:
    stage = importlib.import_module("tests.fuzz.targets").Stage()
    stage.play(read(file.read_bytes()))


def _flags(asked: argparse.Namespace, folder: Path) -> list[str]:
    """Write seeds and words, and return libFuzzer's flags for the arguments."""
    found, given, dictionary = folder / "corpus", folder / "seeds", folder / "words"
    for place in (found, given):
        place.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (given / name.replace("/", "-")).write_bytes(data)
    dictionary.write_text("".join(f'"{_escaped(word)}"\n' for word in words()), encoding="ascii")
    flags = [str(found), str(given), f"-dict={dictionary}", f"-artifact_prefix={folder}/"]
    flags += [f"-seed={asked.seed}", f"-max_len={HEAD + MOST_BYTES}", f"-timeout={_SLOWEST_S}"]
    flags += [f"-rss_limit_mb={_MEMORY_MIB}", "-print_final_stats=1"]
    limit = f"-max_total_time={asked.seconds}" if asked.seconds else f"-runs={asked.runs}"
    return [*flags, limit]


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs (1000000)")
    parser.add_argument("--seconds", type=int, default=0, help="so long instead")
    parser.add_argument("--seed", type=int, default=1, help="of chance (1)")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=int, default=cores, help=f"processes ({cores})")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"to work in ({FOLDER})")
    parser.add_argument("--replay", type=Path, help="play one input from a file, and nothing else")
    return parser


if __name__ == "__main__":
    sys.exit(main())

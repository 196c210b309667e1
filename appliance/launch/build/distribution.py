"""Version and options of an engine that is a Python package, read in the files of its own environment.

Its ``--help`` would import PyTorch: ten seconds and more, and where no GPU is seen some versions fail.
So nothing is run: the program's first line names the interpreter, the environment around that has
the package's metadata and sources, and the options are those that the sources declare. Engines move
these sources: those of several releases are asked for, and what is found must have the options that
every server has.
"""

from __future__ import annotations

import contextlib
import os
import re
from itertools import islice

from appliance.model.engine_build import EngineBuild
from appliance.system.files.regular import read_small_file
from appliance.wire.build_record import MOST_OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SUFFIX = ".dist-info"
_FIRST_BYTES = 4096
_MOST_SOURCE_BYTES = 1 << 20
_MOST_SOURCES = 64
_CORE = ("--port", "--served-model-name")
"""Options that every engine of this kind has; one for its server and one for its model."""
_INTERPRETER = re.compile(rb"(?:\A#!|^'''exec' )[ \t]*\"?(/[^\s\"]+)", re.MULTILINE)
"""First line of a script, or the second where pip found the path too long for the first: its program."""


class Distribution:
    """Package of an engine in the environment of its program.

    Args:
        program: Path of a script of the package, or of the interpreter.
        name: Of the package, as its metadata's directory spells it.
        sources: Modules that declare options, as paths below the directory of packages; one that ends
            with a slash is a folder of such modules. Not every release has all of them.
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
        from appliance.launch.build.declared_options import DeclaredOptions  # noqa: PLC0415

        directory = os.path.basename(self._metadata)
        version = directory.removesuffix(_SUFFIX).partition("-")[2]
        names = islice(DeclaredOptions(self._texts()).names(), MOST_OPTIONS)
        options: dict[str, tuple[str, ...] | None] = dict.fromkeys(names, ())
        missing = [option for option in _CORE if option not in options]
        if missing:
            problem = (
                f"the sources of {self._name} {version} do not declare {' and '.join(missing)}"
            )
            return EngineBuild(version=version, problem=problem, asked_unix_s=asked_unix_s)
        return EngineBuild(
            version=version, options=options, is_complete=False, asked_unix_s=asked_unix_s
        )

    def _texts(self) -> Iterator[str]:
        """Yield the sources that are there."""
        paths = (path for source in self._sources for path in _modules(source))
        for path in islice(paths, _MOST_SOURCES):
            with contextlib.suppress(OSError):
                content = read_small_file(path, _MOST_SOURCE_BYTES, follow_links=True)
                yield content.decode(errors="replace")


def _modules(source: str) -> Iterator[str]:
    """Yield the modules that a source names."""
    if not source.endswith("/"):
        yield source
        return
    for name in _names(source, ""):
        if name.endswith(".py"):
            yield source + name


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

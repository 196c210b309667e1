"""Caches in which engines keep compiled kernels, so that a second start finds them."""

from pathlib import Path

import pytest

from appliance.engines import ENGINES
from appliance.engines.shared.invocation import Invocation, InvocationContext
from appliance.profiles.compilation import ProfileSource, spec_of
from appliance.switch.units.backend_unit import Layout, backend_argv
from appliance.system.profile_files.loading import load_profile
from tests.fakes.profile_texts import MINIMAL

TORCH = ("vllm", "sglang")
CACHES = {
    "CUDA_CACHE_PATH",
    "FLASHINFER_WORKSPACE_BASE",
    "HF_MODULES_CACHE",
    "TMPDIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
}
LONGEST_NAME = "n" * 48
LONGEST_SOCKET_PATH = 107
"""sun_path of unix(7), without its end."""


def invocation(
    engine: str, directory: Path, *, name: str = "a", top: str = "", env: str = ""
) -> Invocation:
    """The invocation of the shortest profile of an engine."""
    path = directory / f"{name}.toml"
    path.write_text(f"{top}{MINIMAL[engine]}{env}")
    return ENGINES[engine].invocation(load_profile(path), InvocationContext())


@pytest.mark.parametrize("engine", TORCH)
def test_compile_caches_are_in_the_cache_directory(engine: str, tmp_path: Path) -> None:
    """Compiled kernels and temporary files lie where a stop does not remove them."""
    found = invocation(engine, tmp_path)
    own = "/var/cache/appliance-backend/a"
    assert found.environment.keys() >= CACHES
    assert all(found.environment[name].startswith(own) for name in CACHES)
    assert found.environment["TMPDIR"] == found.temporary == f"{own}/tmp"  # noqa: S108


def test_sglang_keeps_its_kernels_too(tmp_path: Path) -> None:
    """Kernels that SGLang and DeepGEMM compile are kept beside the rest."""
    environment = invocation("sglang", tmp_path).environment
    own = "/var/cache/appliance-backend/a/sglang"
    assert environment["SGLANG_CACHE_DIR"] == own
    assert environment["SGLANG_DG_CACHE_DIR"] == f"{own}/deep_gemm"


@pytest.mark.parametrize("engine", sorted(MINIMAL.keys() - set(TORCH)))
def test_other_engines_keep_the_private_temporary_directory(engine: str, tmp_path: Path) -> None:
    """Engines that compile nothing have a /tmp that ends with them."""
    found = invocation(engine, tmp_path)
    assert (found.temporary, "TMPDIR" in found.environment) == ("", False)


def test_only_our_temporary_directory_is_cleared(tmp_path: Path) -> None:
    """A TMPDIR that a profile names itself is never cleared."""
    found = invocation("vllm", tmp_path, env='[env]\nTMPDIR = "/srv/scratch"\n')
    assert found.environment["TMPDIR"] == "/srv/scratch"
    assert found.temporary == "/var/cache/appliance-backend/a/tmp"


def test_vllm_on_a_cpu_leaves_its_compiled_code_to_pytorchs_caches(tmp_path: Path) -> None:
    """On a CPU vLLM cannot load what it saves ahead of time; on GPUs it can, and goes on so."""
    name = "VLLM_USE_AOT_COMPILE"
    assert invocation("vllm", tmp_path, top="gpus = []\n").environment[name] == "0"
    assert name not in invocation("vllm", tmp_path).environment


def test_saving_ahead_of_time_can_be_asked_for_on_a_cpu(tmp_path: Path) -> None:
    """A version of vLLM that loads what it saved is told so by its profile."""
    env = '[env]\nVLLM_USE_AOT_COMPILE = "1"\n'
    found = invocation("vllm", tmp_path, top="gpus = []\n", env=env)
    assert found.environment["VLLM_USE_AOT_COMPILE"] == "1"


def test_vllms_sockets_fit_however_long_the_name(tmp_path: Path) -> None:
    """The sockets of vLLM are named after its RPC directory and a UUID: short enough to be bound."""
    found = invocation("vllm", tmp_path, name=LONGEST_NAME)
    uuid = "04d9f3f6-76af-4a3c-b779-13b7865c1826"
    assert len(f"{found.environment['TMPDIR']}/{uuid}") > LONGEST_SOCKET_PATH
    assert len(f"{found.environment['VLLM_RPC_BASE_PATH']}/{uuid}") <= LONGEST_SOCKET_PATH


def test_the_wrapper_clears_what_the_engine_writes_to(tmp_path: Path) -> None:
    """The unit's wrapper is told the very directory that is the engine's TMPDIR."""
    path = tmp_path / "a.toml"
    path.write_text(MINIMAL["vllm"])
    source = ProfileSource(path=str(path), sha256="0" * 64)
    spec = spec_of(load_profile(path), source, InvocationContext())
    argv = backend_argv(spec, Layout(version="1", systemd=252))
    assert argv[argv.index("--temporary") + 1] == spec.invocation.environment["TMPDIR"]

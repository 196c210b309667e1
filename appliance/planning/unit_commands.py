"""What a backend unit is made from, and the commands it runs: the gate, then the wrapper."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from json import dumps
from typing import Final

from appliance.domain.claims import Lease
from appliance.domain.profile import Applied, Need
from appliance.domain.spec import Gpus, Ordering, Override, Patch

BACKEND_USER: Final = "appliance-backend"
LEASE_DIR: Final = "/run/appliance-leases"
GATE_DIR: Final = "/run/appliance-gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSpec:
    """Everything that one backend unit is made from."""

    applied: Applied
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: Gpus = ()
    """The GPUs it uses, claimed or shared."""
    user: str = BACKEND_USER
    order: Ordering = field(default_factory=Ordering)
    patch: Patch | None = None
    overrides: tuple[Override, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The box around the units."""

    prefix: str = "/opt/appliance/current"
    version: str
    systemd: int
    """Major version; 0 when unknown, which counts as oldest."""
    foreign_units: tuple[str, ...] = ()
    """Units that are not ours and must not run beside a backend."""
    margin_bytes: int | None = None
    """VRAM the gate wants free beyond the need; None: its own default."""

    lease_dir: str = LEASE_DIR
    gate_dir: str = GATE_DIR

    @property
    def python(self) -> str:
        """The interpreter of the installed release."""
        return f"{self.prefix}/bin/python"


def gate_argv(spec: UnitSpec, layout: Layout) -> tuple[str, ...]:
    """The gate's command: it refuses, or waits, until the claim is free."""
    applied = spec.applied
    return (
        *_program(layout, "gate", applied.name),
        *_leases(applied.claim.leases()),
        *_gpus(spec.gpus),
        *_needs(applied.need, layout),
        "--deadline-s",
        f"{applied.deadlines.release_s:g}",
        *_directory("--lease-dir", layout.lease_dir, LEASE_DIR),
        *_directory("--gate-dir", layout.gate_dir, GATE_DIR),
    )


def backend_argv(spec: UnitSpec, layout: Layout) -> tuple[str, ...]:
    """The wrapper's command: it takes the leases, watches for readiness and becomes the engine."""
    applied, patch = spec.applied, spec.patch
    endpoint = applied.endpoint
    where = (
        ("--port", str(endpoint.port)) if endpoint.socket is None else ("--socket", endpoint.socket)
    )
    hook: tuple[str, ...] = ()
    if patch is not None:
        expected = (word for text in patch.expect for word in ("--patch-expect", text))
        command = dumps(patch.command, ensure_ascii=False)
        hook = ("--patch-command", command, *expected)
    return (
        *_program(layout, "backend", applied.name),
        *_leases(applied.claim.leases()),
        *_directory("--lease-dir", layout.lease_dir, LEASE_DIR),
        *where,
        "--health",
        applied.health_path,
        "--no-progress-s",
        f"{applied.deadlines.no_progress_s:g}",
        *hook,
        "--",
        *spec.argv,
    )


def _program(layout: Layout, module: str, name: str) -> tuple[str, ...]:
    return (layout.python, "-I", "-m", f"appliance.launch.{module}", "--name", name)


def _directory(option: str, path: str, default: str) -> tuple[str, ...]:
    return () if path == default else (option, path)


def _leases(leases: Iterable[Lease]) -> Iterable[str]:
    for lease in leases:
        yield "--lease"
        yield f"{lease.name}:{'exclusive' if lease.exclusive else 'shared'}"


def _gpus(gpus: Gpus) -> Iterable[str]:
    if not gpus:
        return ()
    return ("--gpus", gpus if isinstance(gpus, str) else ",".join(map(str, gpus)))


def _needs(need: Need, layout: Layout) -> Iterable[str]:
    options = {
        "--vram-bytes": need.vram_bytes,
        "--ram-bytes": need.ram_bytes,
        "--margin-bytes": layout.margin_bytes,
    }
    return (w for key, value in options.items() if value is not None for w in (key, str(value)))

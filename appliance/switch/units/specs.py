"""Specification of a backend unit: what it is made from, and the commands of its gate and its wrapper."""

from collections.abc import Iterable
from dataclasses import dataclass
from json import dumps

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Invocation
from appliance.model import paths
from appliance.model.claims import Lease
from appliance.model.engine_build import EITHER
from appliance.model.model_headers import ModelTraits
from appliance.model.profile import Applied
from appliance.model.spec import Profile
from appliance.switch.memory.gate_arguments import arguments_of
from appliance.switch.need import requirement_of


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSpec:
    """Specification of one backend unit."""

    profile: Profile
    """Unit-only part of the profile: order, patch, overrides."""
    applied: Applied
    invocation: Invocation
    traits: ModelTraits | None = None
    """Traits of its model; None: the model's headers were not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Layout of the box around the units."""

    prefix: str = paths.PREFIX
    version: str
    systemd: int
    """Major version of systemd; 0 when unknown, which counts as oldest."""
    foreign_units: tuple[str, ...] = ()
    """Units of others that must not run beside a backend."""
    margin_bytes: int | None = None
    """Bytes of VRAM that the gate keeps free beyond the need; None: its own default."""

    lease_dir: str = paths.LEASE_DIR
    gate_dir: str = paths.GATE_DIR
    builds_dir: str = f"{paths.APPLIED_DIR}/{paths.BUILDS}"
    """Directory of the records of engines' builds."""
    needs_dir: str = f"{paths.STATE_DIR}/{paths.NEEDS}"
    """Directory in which the supervisor records the peak of each profile."""


def gate_argv(applied: Applied, layout: Layout) -> tuple[str, ...]:
    """Return the gate's command: the gate refuses, or waits, until the claim is free.

    `applied` has its conflicts filled in.
    """
    margin = layout.margin_bytes
    return (
        *_program(layout, paths.GATE_SCRIPT, applied.name),
        *_leases(applied.claim.leases()),
        *(word for rival in applied.conflicts for word in ("--rival", rival)),
        *arguments_of(requirement_of(applied)),
        *_observed(applied, layout),
        *(() if margin is None else ("--margin-bytes", str(margin))),
        *_port(applied),
        "--deadline-s",
        f"{applied.deadlines.release_s:g}",
        *_directory("--lease-dir", layout.lease_dir, paths.LEASE_DIR),
        *_directory("--gate-dir", layout.gate_dir, paths.GATE_DIR),
    )


def backend_argv(spec: UnitSpec, layout: Layout) -> tuple[str, ...]:
    """Return the wrapper's command: it takes leases, waits for readiness and runs the engine."""
    applied, patch, invocation = spec.applied, spec.profile.patch, spec.invocation
    endpoint, leases = applied.endpoint, applied.claim.leases()
    where = (
        ("--port", str(endpoint.port)) if endpoint.socket is None else ("--socket", endpoint.socket)
    )
    hook: tuple[str, ...] = ()
    if patch is not None:
        expected = (word for text in patch.expect for word in ("--patch-expect", text))
        command = dumps(patch.command, ensure_ascii=False)
        hook = ("--patch-command", command, *expected)
    return (
        *_program(layout, paths.BACKEND_SCRIPT, applied.name),
        *_leases(leases),
        *(("--lease-dir", paths.CLAIMED_DIR) if leases else ()),
        *where,
        "--health",
        applied.health_path,
        "--no-progress-s",
        f"{applied.deadlines.no_progress_s:g}",
        *(("--temporary", invocation.temporary) if invocation.temporary else ()),
        *_build(spec, layout),
        *hook,
        "--",
        *invocation.argv,
    )


def _build(spec: UnitSpec, layout: Layout) -> tuple[str, ...]:
    """Return the wrapper's arguments by which it knows the engine's build; none: one spelling fits all."""
    if EITHER not in spec.invocation.argv:
        return ()
    question = ENGINES[spec.applied.engine].build_question
    return ("--ask-build", question, "--build-record", record_path(spec.applied, layout))


def record_path(applied: Applied, layout: Layout) -> str:
    """Return the path of the record of the engine's build."""
    return f"{layout.builds_dir}/{applied.name}.json"


def _port(applied: Applied) -> Iterable[str]:
    """Yield the gate's arguments that name the port, and how the engine may bind it."""
    if applied.endpoint.port is None:
        return
    yield from ("--port", str(applied.endpoint.port))
    yield from ("--port-program", applied.binary or applied.engine)
    for kind in ENGINES[applied.engine].port_reuse:
        yield from ("--port-reuse", kind)


def _program(layout: Layout, script: str, name: str) -> tuple[str, ...]:
    return (f"{layout.prefix}/{script}", "--name", name)


def _directory(option: str, path: str, default: str) -> tuple[str, ...]:
    return () if path == default else (option, path)


def _leases(leases: Iterable[Lease]) -> Iterable[str]:
    for lease in leases:
        yield "--lease"
        yield f"{lease.name}:{'exclusive' if lease.exclusive else 'shared'}"


def _observed(applied: Applied, layout: Layout) -> tuple[str, ...]:
    """Return the gate's arguments that name the observed peak; none without a fingerprint."""
    if not applied.fingerprint:
        return ()
    path = f"{layout.needs_dir}/{applied.name}.json"
    return ("--observed", path, "--fingerprint", applied.fingerprint)

"""Verb `appliance show`."""

import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.box import applied_of, places_of, read_status, row_of
from appliance.cli.failures import CliError, need_root
from appliance.cli.health_questions import details_of
from appliance.cli.operation_follower import need_lines
from appliance.cli.paths import Places
from appliance.cli.status_screens import show_one
from appliance.cli.terminal import Streams, Terminal
from appliance.cli.verbs.speeds import show_baselines
from appliance.model.amounts import duration, size
from appliance.model.memory import DeviceMemory, Quality
from appliance.model.names import unit_of
from appliance.model.paths import NEEDS
from appliance.model.profile import Applied
from appliance.model.status import BuildRow, GpuRow, StatusDocument
from appliance.presentation.clock_times import local_minute
from appliance.presentation.speed_history import baseline_in
from appliance.status.memory_rows import need_row
from appliance.switch.need import BoxNeed, estimate_row, resolve
from appliance.system.applied.manifest import manifest_entry
from appliance.system.files.regular import read_small_file
from appliance.system.launch_files import read_peak
from appliance.wire.control import Exit
from appliance.wire.health_socket import BaselineRequest

_MOST_BYTES: Final = 1 << 20
"""Largest unit or profile in bytes."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Print everything about one profile, its unit, its file, or its baselines."""
    places = places_of(arguments)
    applied = applied_of(places, arguments.name)
    if arguments.unit or arguments.config:
        unit = Path(places.unit_dir, unit_of(applied.name))
        path = unit if arguments.unit else Path(applied.source_path)
        return _file(path, arguments, streams.out)
    if arguments.baseline:
        return _baseline(arguments, streams.out)
    document = read_status(places)
    row = row_of(document, applied.name)
    devices = _devices(document)
    need = _need(applied, places, document, devices)
    parts = estimate_row(applied, devices)
    estimate = None if parts is None else asdict(parts)
    if arguments.json:
        plain = {
            **row.fields(),
            "applied": manifest_entry(applied),
            "need": need_row(need),
            "estimate": estimate,
        }
        streams.out.document(plain)
        return int(Exit.OK)
    show_one(row, streams.out, now=time.time())
    for line in row.unit_changes:
        streams.out.line(f"    {'by hand':12} {line}")
    facts = (*_build(row.build), *_facts(applied, need), *need_lines(estimate or {}))
    for label, value in facts:
        streams.out.line(f"    {label:12} {value}")
    return int(Exit.OK)


def _file(path: Path, arguments: Arguments, out: Terminal) -> int:
    try:
        text = read_small_file(path, _MOST_BYTES, follow_links=True).decode(errors="replace")
    except FileNotFoundError as error:
        raise CliError(f"{path} is missing: sudo appliance apply", Exit.FAILED) from error
    except PermissionError as error:
        raise need_root(f"show {arguments.name}") from error
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}", Exit.FAILED) from error
    if arguments.json:
        out.document({"path": str(path), "text": text})
    else:
        out.content(text if text.endswith("\n") else f"{text}\n")
    return int(Exit.OK)


def _baseline(arguments: Arguments, out: Terminal) -> int:
    report = details_of(arguments, BaselineRequest(arguments.name))
    if arguments.json:
        out.document(report)
    else:
        show_baselines(baseline_in(report), out)
    return int(Exit.OK)


def _devices(document: StatusDocument) -> tuple[DeviceMemory, ...]:
    """Return the GPUs of the supervisor's memory figures whose memory is known."""
    rows = () if document.memory is None else document.memory.gpus
    return tuple(_device(row) for row in rows if row.total_bytes)


def _need(
    applied: Applied,
    places: Places,
    document: StatusDocument,
    devices: tuple[DeviceMemory, ...],
) -> BoxNeed:
    """Return the need of a profile, with its observed peak, on the supervisor's memory figures."""
    ram_total_bytes = 0 if document.memory is None else document.memory.ram_total_bytes
    peak = read_peak(Path(places.state_dir, NEEDS), applied.name)
    return resolve(applied, peak, devices, ram_total_bytes)


def _device(row: GpuRow) -> DeviceMemory:
    """Return a GPU of the status document."""
    opaque = row.quality == Quality.OPAQUE
    reserved_bytes = 0 if opaque else row.total_bytes - row.free_bytes - row.used_bytes
    return DeviceMemory(
        index=row.index,
        uuid=row.uuid,
        name=row.name,
        total_bytes=row.total_bytes,
        free_bytes=row.free_bytes,
        used_bytes=row.used_bytes,
        reserved_bytes=max(0, reserved_bytes),
        quality=Quality.OPAQUE if opaque else Quality.EXACT,
    )


def _build(row: BuildRow | None) -> Iterable[tuple[str, str]]:
    """Yield the build of the engine; nothing where it is not known."""
    if row is None:
        return
    asked = f"asked {local_minute(row.asked_unix_s)}"
    if row.problem:
        yield "build", f"not known: {row.problem} ({asked})"
        return
    yield "build", f"{row.version or 'without a version'} ({asked})"
    if row.lacks:
        yield "", f"lacks {', '.join(row.lacks)}, which the profile needs"


def _facts(applied: Applied, need: BoxNeed) -> Iterable[tuple[str, str]]:
    yield "description", applied.description or "none"
    yield "model", applied.model or "none"
    yield "program", applied.binary
    yield "serves", ", ".join(applied.names)
    yield "endpoint", applied.endpoint.socket or f"127.0.0.1:{applied.endpoint.port}"
    yield "claims", ", ".join(sorted(applied.claim.devices)) or "nothing (shared)"
    yield "needs VRAM", need.text
    if len(need.gpus) > 1:
        yield "", ", ".join(f"GPU {i}: {size(wanted)}" for i, wanted in need.gpus.items())
    yield "needs RAM", need.ram_text
    yield "stop within", duration(applied.deadlines.stop_s)
    yield "drain within", duration(applied.deadlines.drain_s)
    yield "excludes", ", ".join(applied.conflicts) or "no other profile"
    yield "profile", applied.source_path

"""`appliance show`."""

import dataclasses
import json
import time
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from appliance.domain.names import unit_of
from appliance.domain.profile import Applied
from appliance.domain.protocol import Exit
from appliance.planning.wording import duration, size
from appliance.surfaces.cli.box import places_of, read_status, row_of
from appliance.surfaces.cli.catalogue import applied_of
from appliance.surfaces.cli.failure import CliError, need_root
from appliance.surfaces.cli.screens import show_one
from appliance.surfaces.cli.terminal import Streams, Terminal


def run(arguments: Namespace, streams: Streams) -> int:
    """Print everything about one profile, its unit, or its file."""
    places = places_of(arguments)
    applied = applied_of(places, arguments.name)
    if arguments.unit or arguments.config:
        unit = Path(places.unit_dir, unit_of(applied.name))
        path = unit if arguments.unit else Path(applied.source_path)
        return _file(path, arguments, streams.out)
    row = row_of(read_status(places), applied.name)
    if arguments.json:
        document = {**row, "applied": _plain(applied)}
        streams.out.line(json.dumps(document, indent=2, ensure_ascii=False))
        return int(Exit.OK)
    show_one(row, streams.out, now=time.time())
    for label, value in _facts(applied):
        streams.out.line(f"    {label:12} {value}")
    return int(Exit.OK)


def _file(path: Path, arguments: Namespace, out: Terminal) -> int:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise CliError(f"{path} is missing: sudo appliance apply", Exit.FAILED) from error
    except PermissionError as error:
        raise need_root(f"show {arguments.name}") from error
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}", Exit.FAILED) from error
    if arguments.json:
        out.line(json.dumps({"path": str(path), "text": text}, indent=2, ensure_ascii=False))
    else:
        out.write(text if text.endswith("\n") else f"{text}\n")
    return int(Exit.OK)


def _facts(applied: Applied) -> Iterable[tuple[str, str]]:
    need = applied.need
    yield "description", applied.description or "none"
    yield "model", applied.model or "none"
    yield "program", applied.binary
    yield "serves", ", ".join(applied.served)
    yield "endpoint", applied.endpoint.socket or f"127.0.0.1:{applied.endpoint.port}"
    yield "claims", ", ".join(sorted(applied.claim.devices)) or "nothing (shared)"
    yield "needs", f"{_need(need.vram_bytes)} of VRAM, {_need(need.ram_bytes)} of RAM"
    yield "stop within", duration(applied.deadlines.stop_s)
    yield "drain within", duration(applied.deadlines.drain_s)
    yield "excludes", ", ".join(applied.conflicts) or "no other profile"
    yield "profile", applied.source_path


def _need(count_bytes: int | None) -> str:
    return "an undeclared amount" if count_bytes is None else size(count_bytes)


def _plain(applied: Applied) -> dict[str, object]:
    """As JSON can say it: a set of devices becomes a sorted list."""
    return {**dataclasses.asdict(applied), "claim": sorted(applied.claim.devices)}

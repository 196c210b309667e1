"""The program's code that pins are made with: the only imports from it in this package."""

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.adapters.key_file import FileKeys
from appliance.domain.gateway import Key
from appliance.domain.names import unit_of
from appliance.install.apply import ApplyOptions, run_apply
from appliance.settings import load_settings
from tests.fakes.service_manager import FakeManager

__all__ = ["SHARED_THREADS", "FakeManager", "Output", "add_key", "apply", "unit_of"]

SHARED_THREADS: Final = min(os.cpu_count() or 1, 8)
"""Threads of an embedded engine whose profile does not say: this machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command left: its exit status and its two streams."""

    status: int
    out: str
    err: str


def apply(settings: Path, manager: FakeManager, *words: str) -> Output:
    """``appliance apply`` by root, with the settings in a file and a systemd in memory."""
    out, err = io.StringIO(), io.StringIO()
    options = ApplyOptions(
        dry_run="--dry-run" in words,
        adopt="--adopt-changes" in words,
        discard="--discard" in words,
        as_json="--json" in words,
    )
    status = run_apply(
        load_settings(settings, {}), options, manager=manager, euid=0, out=out, err=err
    )
    return Output(status=int(status), out=out.getvalue(), err=err.getvalue())


def add_key(state: Path) -> None:
    """Let one client use the gateway."""
    FileKeys(state).add(Key(name="ana"), 0.0)

"""A box in a folder for the command line: manifest, state files and a systemctl that recites."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.model.names import unit_of
from appliance.model.profile import Applied
from appliance.system.applied.manifest import encode_manifest

_MAIN = "appliance.cli.main"
_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """End of a command."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class CliBox:
    """Files below `root`, and the environment that makes the command line use them."""

    root: Path

    @property
    def socket(self) -> Path:
        """Return the path where the box's supervisor would listen."""
        return self.root / "control.sock"

    @property
    def health_socket(self) -> Path:
        """Return the path where the box's health agent would listen."""
        return self.root / "health.sock"

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables for a command on this box."""
        return {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "TZ": "UTC",
            "APPLIANCE_SETTINGS": str(self.root / "appliance.toml"),
            "APPLIANCE_CONTROL_SOCKET": str(self.socket),
            "APPLIANCE_STATE_DIR": str(self.root / "state"),
            "APPLIANCE_APPLIED_DIR": str(self.root / "applied"),
            "APPLIANCE_GATE_DIR": str(self.root / "gate"),
            "APPLIANCE_UNIT_DIR": str(self.root / "units"),
            "APPLIANCE_PROFILES_DIR": str(self.root / "profiles"),
        }

    def install(self, *profiles: Applied, committed: str = "", hold: str | None = None) -> None:
        """Write the manifest and the state files."""
        for folder in ("applied", "state", "gate", "units", "profiles", "bin"):
            (self.root / folder).mkdir(exist_ok=True)
        (self.root / "appliance.toml").touch()
        manifest = encode_manifest({p.name: p for p in profiles}, "0.1.0")
        (self.root / "applied" / "manifest.json").write_text(manifest)
        (self.root / "state" / "active").write_text(committed)
        if hold is not None:
            (self.root / "state" / "hold").write_text(hold)

    def program(self, name: str, script: str) -> None:
        """Put a shell script first on the command's PATH."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def systemd_says(self, **units: str) -> None:
        """Set the output of systemctl: properties by profile, separated by spaces.

        The units ``hold``, ``run`` and ``supervisor`` are the static ones.
        """
        blocks = [
            "\n".join([f"Id={_unit(name)}", "LoadState=loaded", *shlex.split(properties)])
            for name, properties in units.items()
        ]
        answer = self.root / "systemctl.txt"
        answer.write_text("\n\n".join(blocks) + "\n")
        self.program("systemctl", f'echo "$@" >> {self.root}/asked; cat {answer}')

    def asked(self) -> list[str]:
        """The command lines that systemctl was run with."""
        log = self.root / "asked"
        return log.read_text().splitlines() if log.exists() else []

    def command(self, *arguments: str) -> list[str]:
        """The program's command line."""
        return [sys.executable, "-m", _MAIN, *arguments]

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Ended:
        """Run a command on this box as a process of its own; `stdin` is its standard input."""
        done = subprocess.run(
            self.command(*arguments),
            env={**self.environment, **environment},
            capture_output=True,
            input=stdin.encode(),
            timeout=_TIMEOUT_S,
            check=False,
        )
        return Ended(
            status=done.returncode,
            out=done.stdout.decode(errors="replace"),
            err=done.stderr.decode(errors="replace"),
        )


def _unit(name: str) -> str:
    return f"appliance-{name}.service" if name in {"hold", "run", "supervisor"} else unit_of(name)

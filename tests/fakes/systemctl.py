"""A service manager that remembers what it was told."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class FakeSystemctl:
    """As `appliance.system.systemd.systemctl.Systemctl`, in memory."""

    systemd: int = 252
    """Major version; Debian 12's."""
    runs: bool = True
    """Whether systemd is PID 1."""
    opens: bool = True
    """Whether a socket unit listens after it was opened again."""
    units: dict[str, dict[str, str]] = field(default_factory=dict)
    """Properties by profile."""
    calls: list[str] = field(default_factory=list)

    def version(self) -> int:
        """Return the version that the test set."""
        return self.systemd

    def backends(self) -> Mapping[str, Mapping[str, str]]:
        """Return the backends that the test set."""
        return self.units if self.runs else {}

    def daemon_reload(self) -> bool:
        """Count it."""
        if self.runs:
            self.calls.append("daemon-reload")
        return self.runs

    def reload_supervisor(self) -> None:
        """Count it."""
        if self.runs:
            self.calls.append("reload supervisor")

    def reload_gateway(self) -> None:
        """Count it."""
        if self.runs:
            self.calls.append("reload gateway")

    def reopen(self, socket_unit: str, service_unit: str) -> bool:
        """Count it."""
        if self.runs:
            self.calls.append(f"reopen {socket_unit}, {service_unit}")
        return self.opens

    def restart_if_running(self, unit: str) -> None:
        """Count it."""
        if self.runs:
            self.calls.append(f"restart {unit}")

    def run(self, name: str, *, stale: bool = False) -> None:
        """Let the unit of a profile run."""
        needed = "yes" if stale else "no"
        self.units[name] = {"ActiveState": "active", "NeedDaemonReload": needed}

"""The gate before every start: refuses until the claim and its memory are really free.

Runs as ``ExecCondition=+`` of a backend's unit, as root, with everything it needs in its
arguments. Exit statuses, as systemd.service(5) reads them:

=====  ============================================================================
0      admitted
75     refused: a rival holds a lease, or the machine is too small; skipped without restart
255    late: the memory has not come back; the unit failed, ``Restart=`` applies
64     the command line makes no sense; skipped without restart
=====  ============================================================================

It polls every 2 ms at first and every 50 ms later: a release takes 0.2 to 1.5 s typically.
"""

from __future__ import annotations

import sys
import time

from appliance.launch import leases, memory, obstacles, refusal
from appliance.launch.journal import ERROR, WARNING, say
from appliance.launch.names import is_profile_name, unit_of
from appliance.launch.options import EX_USAGE, Options, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

ADMITTED = 0
REFUSED = 75
LATE = 255

_FLAGS = (
    "name",
    "lease",
    "gpus",
    "vram-bytes",
    "ram-bytes",
    "margin-bytes",
    "deadline-s",
    # For tests; the rendered units leave these at their defaults.
    "lease-dir",
    "gate-dir",
    "systemctl",
)
_DEADLINE_S = 60.0
_FIRST_PAUSE_S = 0.002
_LAST_PAUSE_S = 0.05
_PAUSE_GROWTH = 1.5
_STATUS_EVERY_S = 1.0
_EXTENSION_S = 15.0
"""systemd's start time-out is kept this far ahead while we wait. Should we hang, it ends us."""
_SYSTEMCTL_TIMEOUT_S = 5.0


class Gate:
    """One decision about one start."""

    def __init__(self, options: Options) -> None:
        self._name = options.text("name")
        if not is_profile_name(self._name):
            raise UsageError(f"not a profile's name: {self._name}")
        self._leases = leases.parse(
            options.many("lease"), options.text("lease-dir", leases.DIRECTORY)
        )
        margin = options.whole("margin-bytes")
        self._want = memory.Want(
            ram=options.whole("ram-bytes"),
            vram=options.whole("vram-bytes"),
            gpus=_gpus(options.optional("gpus")),
            margin=memory.MARGIN_BYTES if margin is None else margin,
        )
        self._deadline_s = options.seconds("deadline-s", _DEADLINE_S)
        self._gate_dir = options.text("gate-dir", refusal.DIRECTORY)
        self._systemctl = options.text("systemctl", "/usr/bin/systemctl")
        self._announced_s = -_STATUS_EVERY_S

    def run(self) -> int:
        """Wait for admission; the exit status."""
        started_s = time.monotonic()
        gpus = None
        if self._want.claims_gpus:
            gpus = obstacles.GpuWatch(self._want, clock=time.monotonic)
        pause_s = _FIRST_PAUSE_S
        try:
            while (obstacle := self._obstacle(gpus, pause_s)) is not None:
                waited_s = time.monotonic() - started_s
                patience_s = obstacle.patience_s
                if patience_s is None or patience_s > self._deadline_s:
                    patience_s = self._deadline_s
                if waited_s >= patience_s:
                    return self._refuse(obstacle, waited_s)
                self._announce(obstacle, waited_s)
                time.sleep(pause_s)
                pause_s = min(pause_s * _PAUSE_GROWTH, _LAST_PAUSE_S)
        finally:
            if gpus is not None:
                gpus.close()
        refusal.clear(self._gate_dir, self._name)
        return ADMITTED

    def _obstacle(
        self, gpus: obstacles.GpuWatch | None, timeout_s: float
    ) -> obstacles.Obstacle | None:
        """The first thing in the way, cheapest look first; None: admitted."""
        obstacle = obstacles.held_lease(self._leases) or obstacles.late_ram(self._want)
        if obstacle is None and gpus is not None:
            return gpus.look(timeout_s)
        return obstacle

    def _announce(self, obstacle: obstacles.Obstacle, waited_s: float) -> None:
        if waited_s - self._announced_s < _STATUS_EVERY_S:
            return
        self._announced_s = waited_s
        from appliance.launch.notify import extend, notify  # noqa: PLC0415

        notify(f"STATUS={obstacle.status}", extend(_EXTENSION_S))

    def _refuse(self, obstacle: obstacles.Obstacle, waited_s: float) -> int:
        waited = f" (waited {waited_s:.0f} s)" if waited_s >= 1 else ""
        verdict = "refused" if obstacle.rival else "late"
        reason = f"{obstacle.explain()}{waited}"
        self._reset_failed()
        try:
            refusal.write(self._gate_dir, self._name, verdict=verdict, reason=reason)
        except OSError as error:
            say(WARNING, f"cannot leave the refusal in {self._gate_dir}: {error.strerror}")
        from appliance.launch.notify import notify  # noqa: PLC0415

        notify(f"STATUS={verdict}: {reason}")
        say(ERROR, f"{self._name} {verdict}: {reason}")
        return REFUSED if obstacle.rival else LATE

    def _reset_failed(self) -> None:
        """Take this start off the start limit: being refused is no crash."""
        import subprocess  # noqa: PLC0415

        argv = [self._systemctl, "reset-failed", unit_of(self._name)]
        null = subprocess.DEVNULL
        try:
            subprocess.run(  # noqa: S603
                argv,
                check=False,
                timeout=_SYSTEMCTL_TIMEOUT_S,
                stdin=null,
                stdout=null,
                stderr=null,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            say(WARNING, f"systemctl reset-failed: {error}")


def _gpus(text: str | None) -> tuple[int, ...] | None:
    """NVML indexes in ``0,1``; None for ``all``; empty for no claim on a GPU."""
    if text == "all":
        return None
    if not text:
        return ()
    words = text.split(",")
    if not all(w.isascii() and w.isdigit() for w in words):
        raise UsageError(f"--gpus is neither all nor a list of indexes: {text}")
    return tuple(sorted({int(w) for w in words}))


def main(argv: Sequence[str]) -> int:
    """Decide; the exit status is the verdict."""
    try:
        return Gate(Options(argv, _FLAGS)).run()
    except UsageError as error:
        say(ERROR, f"gate: {error}")
        return EX_USAGE
    except OSError as error:
        # A full or read-only /run may be better at the next try.
        say(ERROR, f"gate: {error}")
        return LATE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A box: its disk, its systemd, and what a test does to them."""

import contextlib
import shutil
import subprocess
import time
import uuid
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from tests.system.rig.boot import POWER_OFF, REBOOT, Boot
from tests.system.rig.cgroups import Slot
from tests.system.rig.disk import CrashDisk
from tests.system.rig.furniture import furnish, name_box
from tests.system.rig.host import (
    HOST_PATH,
    BoxInUseError,
    RigError,
    mark_owned,
    missing,
    work_dir,
)
from tests.system.rig.polling import Polling
from tests.system.rig.stage import Stage
from tests.system.rig.stream import Stream

if TYPE_CHECKING:
    from tests.system.rig.image import Image

ENVIRONMENT: Final = {"PATH": HOST_PATH, "HOME": "/root", "LANG": "C.UTF-8", "SYSTEMD_PAGER": ""}
IN_MEMORY: Final = ("/run/", "/tmp/")  # noqa: S108 - a box's
"""Directories that a booted box mounts anew."""


class Box:
    """A disposable machine; use it as a context manager, or `setup`, `boot` and `close`."""

    def __init__(
        self,
        image: "Image | None" = None,
        *,
        name: str | None = None,
        disk: str | None = None,
        read_only: Mapping[str, Path] | None = None,
        nspawn: Sequence[str] = (),
    ) -> None:
        """Describe a box; nothing happens yet.

        Args:
            image: prepared layers to stack it on; None: the machine's own root only.
            name: its host name; None: a new one.
            disk: a directory of the box, such as ``/var/lib/appliance``, to put on a disk that
                loses unsynced data at a power cut; None: everything written survives.
            read_only: directories of the machine by the path at which the box shall see them.
            nspawn: more arguments for systemd-nspawn.
        """
        self.name = name or f"box-{uuid.uuid4().hex[:8]}"
        self._image = image
        self._disk_path = disk
        self._disk: CrashDisk | None = None
        self._nspawn = [*nspawn]
        for inside, outside in (read_only or {}).items():
            self._nspawn.append(f"--bind-ro={outside}:{inside}")
        self._directory = work_dir() / self.name
        self._slot = Slot(self._directory)
        self._is_ours = False
        """Whether the directory was made by this box, so that ending it ends nothing of another."""
        self._stage: Stage | None = None
        self._boot: Boot | None = None
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()

    # --- its life ------------------------------------------------------------------------

    def setup(self) -> Self:
        """Lay its disk over the machine's root; raise `RigError` where that cannot be."""
        if reason := missing():
            raise RigError(reason)
        try:
            self._directory.mkdir(parents=True)
        except FileExistsError as error:
            raise BoxInUseError(self._directory) from error
        self._is_ours = True
        mark_owned(self._directory)
        (self._directory / "mnt").mkdir()
        stage = Stage(self._directory / "mnt", inside=self._image.stage if self._image else None)
        self._stage = stage
        if self._image is None:
            furnish(stage.seen(stage.upper))
        name_box(stage.seen(stage.upper), self.name)
        self.mount()
        if self._disk_path is not None:
            self._disk = CrashDisk(stage, like=Path(self._disk_path))
            self._nspawn.append(f"--bind={self._disk.mount_point}:{self._disk_path}")
        return self

    def mount(self) -> None:
        """Mount its root directory: its own layer over those of the image and over the machine's root."""
        layers = self._image.layers if self._image else ()
        self.stage.overlay([*layers, Path("/")])

    def boot(self) -> Self:
        """Boot it and wait until its systemd has reached its default target."""
        self._boot = Boot(
            name=self.name,
            stage=self.stage,
            slot=self._slot,
            arguments=self._nspawn,
            log=self._directory / "console.log",
        )
        # Of this boot, for people: each has others.
        (self._directory / "leader").write_text(str(self.leader))
        (self._directory / "nspawn").write_text(str(self.nspawn_pid))
        return self

    def reboot(self) -> Self:
        """Reboot it in good order: its disk stays, /run is new."""
        self.run("systemctl", "--no-block", "reboot", check=False)
        return self.reboot_awaited()

    def reboot_awaited(self, timeout_s: float = 90.0) -> Self:
        """Boot again once the box has gone down for a reboot that was asked for inside."""
        self._expect_exit(REBOOT, timeout_s)
        return self.boot()

    def power_cut(self) -> Self:
        """Pull the plug, and boot again."""
        return self.unplug().boot()

    def unplug(self) -> Self:
        """Pull the plug: every process ends at once, and a crash disk loses unsynced data."""
        self._running.kill()
        if self._disk is not None:
            self._disk.cut()
        return self

    def power_off(self) -> Self:
        """Shut it down in good order."""
        self.run("systemctl", "--no-block", "poweroff", check=False)
        self._expect_exit(POWER_OFF, 90)
        return self

    def _expect_exit(self, status: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while (ended := self._running.poll(0.1)) is None:
            for stream in [*self._streams]:
                stream.resume()
            if time.monotonic() > deadline:
                raise RigError(f"{self.name} still runs after {timeout_s} s:\n{self.console()}")
        if ended != status:
            raise RigError(f"{self.name} ended with {ended}, not {status}:\n{self.console()}")

    def close(self) -> None:
        """End it and remove every trace; nothing of a box that another process has made."""
        if not self._is_ours:
            return
        if self._boot is not None:
            self._boot.kill()
        self._slot.kill()
        self._slot.remove()
        if self._disk is not None:
            with contextlib.suppress(RigError):  # a cut that failed may have left it unmounted
                self._disk.close()
        if self._stage is not None:
            self._stage.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def keep(self) -> None:
        """Boot it again after each reboot that is asked for inside, until it has shut down."""
        while self._running.process.wait() == REBOOT:
            self.boot()

    def __enter__(self) -> Self:
        try:
            return self.setup().boot()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- what it shows -------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        """Return the box's mounts; raises `RigError` before `setup`."""
        if self._stage is None:
            raise RigError(f"{self.name} is not set up")
        return self._stage

    @property
    def _running(self) -> Boot:
        if self._boot is None:
            raise RigError(f"{self.name} was not booted")
        return self._boot

    @property
    def layers(self) -> tuple[Path, ...]:
        """Return the layers of the box without the machine, highest first."""
        return (self.stage.upper, *(self._image.layers if self._image else ()))

    @property
    def root(self) -> Path:
        """Return the box's root as seen from this process, without /run, /tmp and a crash disk."""
        return self.stage.seen(self.stage.root)

    @property
    def leader(self) -> int:
        """The process id, on this machine, of its systemd."""
        return self._running.leader

    @property
    def nspawn_pid(self) -> int:
        """The process id of the systemd-nspawn that runs it; SIGTERM there shuts it down."""
        return self._running.process.pid

    @property
    def group(self) -> str:
        """The name of its control group on this machine."""
        return self._slot.name

    @property
    def boot_s(self) -> float:
        """Return the seconds of the box's last boot."""
        return self._running.boot_s

    def console(self) -> str:
        """The end of what it printed on its console."""
        return (self._directory / "console.log").read_text(errors="replace")[-4000:]

    def journal(self, *arguments: str) -> str:
        """Return the box's journal of this boot."""
        command = ["journalctl", "--boot", "--no-pager", "--output=short-monotonic"]
        return self.run(*command, *arguments, check=False).stdout

    # --- what it does --------------------------------------------------------------------

    def run(
        self,
        *argv: str,
        user: str | None = None,
        check: bool = True,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the box; one single argument is a shell line.

        Args:
            argv: the command.
            user: a user of the box, with all groups it is in; None: root.
            check: raise `RigError`, with what was printed, when it fails.
            stdin: what it reads; None: nothing.
            env: added to the small environment that every command gets.
            timeout_s: after this it is killed and `subprocess.TimeoutExpired` raised.
        """
        with self.stream(*argv, user=user, env=env) as stream:
            out, _ = stream.process.communicate(stdin or "", timeout=timeout_s)
            done = subprocess.CompletedProcess(
                argv, stream.process.returncode, out, stream.errors()
            )
        if check and done.returncode:
            raise RigError(f"{argv} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def stream(
        self,
        *argv: str,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        tty: bool = False,
    ) -> Stream:
        """Start a command in the box and go on; see `run` and `Stream`."""
        stream = Stream(self._entering(argv, user, env), tty=tty)
        self._streams.add(stream)
        return stream

    def _entering(
        self, argv: Sequence[str], user: str | None, env: Mapping[str, str] | None
    ) -> list[str]:
        command = ["bash", "-c", argv[0]] if len(argv) == 1 else [*argv]
        become = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user else []
        variables = [f"{k}={v}" for k, v in {**ENVIRONMENT, **(env or {})}.items()]
        enter = ["nsenter", "-t", str(self.leader), "-a"]
        return [*enter, "env", "-i", *variables, *become, *command]

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file on its disk, making directories as needed.

        Raises:
            RigError: the path is in a directory that a booted box has in memory.
        """
        if path.startswith(IN_MEMORY):
            raise RigError(f"{path} would not be seen in the box: {IN_MEMORY} are not on its disk")
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def unit(self, name: str, text: str) -> None:
        """Install a unit, and have a running systemd read it."""
        self.write(f"/etc/systemd/system/{name}", text)
        if self._boot is not None:
            self.run("systemctl", "daemon-reload")

    def wait_for(self, shell: str, *, timeout_s: float = 10.0) -> None:
        """Wait until a shell line succeeds in the box."""
        polling = Polling(timeout_s)
        while self.run(shell, check=False).returncode:
            if not polling.pause():
                raise RigError(f"not true after {timeout_s} s: {shell}\n{self.journal('-n40')}")

    def wait_for_listener(self, port: int) -> None:
        """Wait until a socket of the box listens on a TCP port over IPv4.

        A connection that an earlier engine closed stays in the kernel's table for a minute.
        """
        self.wait_for(f"grep -q ': [0-9A-F]*:{port:04X} [0-9A-F:]* 0A ' /proc/net/tcp")

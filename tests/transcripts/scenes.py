"""States of the box in which pages are played."""

import re
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from tests.system.fleet import OPERATOR
from tests.system.rig import Box
from tests.transcripts.command_check import ROOT

CHECKOUT: Final = "/root/appliance"
"""Directory in which pages are played: a copy of the tracked files."""
_EXAMPLES: Final = ROOT / "profiles"
_PROFILES: Final = "/etc/appliance/profiles"
_RESET: Final = f"""
systemctl unfreeze 'appliance-backend-*' 2>/dev/null
systemctl start appliance-supervisor.service appliance-gateway.service appliance-health.service
appliance cancel >/dev/null 2>&1; appliance wait >/dev/null 2>&1
rm -rf {_PROFILES}/* /etc/appliance/appliance.toml /etc/appliance/targets.toml /etc/appliance/canaries
rm -rf /etc/systemd/system/appliance-backend-*.d
"""
_GENESIS: Final = {"genesis": 8022, "aeon": 8023}


def bring_checkout(box: Box) -> None:
    """Copy the files of this checkout, without what git ignores, into a box."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [
        name for name in listed.stdout.split(b"\0") if name and (ROOT / name.decode()).is_file()
    ]
    target = box.root / CHECKOUT.lstrip("/")
    target.mkdir(parents=True)
    packed = ["tar", "-c", "-C", str(ROOT), "--null", "-T", "-"]
    with subprocess.Popen(packed, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tar:
        assert tar.stdin is not None
        tar.stdin.write(b"\0".join(names))
        tar.stdin.close()
        subprocess.run(["tar", "-x", "-C", str(target)], stdin=tar.stdout, check=True)


def bare(box: Box) -> None:
    """The appliance is not installed; there is somebody who will be an operator."""
    box.run(f"{CHECKOUT}/scripts/install.sh --uninstall --purge", check=False)
    box.run(f"id -u {OPERATOR} || useradd -m {OPERATOR}")


def demo(box: Box) -> None:
    """The example profiles smol and smol-long are applied; smol is live and serves."""
    _apply(
        box,
        {name: (_EXAMPLES / f"{name}.toml").read_text("utf-8") for name in ("smol", "smol-long")},
    )
    box.run("appliance switch smol && appliance mark smol live && appliance mark smol-long standby")


def garage(box: Box) -> None:
    """The profiles genesis and aeon run the embedded engine; genesis is live and serves."""
    example = (_EXAMPLES / "smol.toml").read_text("utf-8")
    profiles = {}
    for name, port in _GENESIS.items():
        text = re.sub(r"(?m)^port .*", f"port    = {port}", example)
        profiles[name] = re.sub(r"(?m)^description .*", f'description = "the model {name}"', text)
    _apply(box, profiles)
    box.run(
        "appliance switch genesis && appliance mark genesis live && appliance mark aeon standby"
    )


def _apply(box: Box, profiles: Mapping[str, str]) -> None:
    if box.run("test -x /usr/local/bin/appliance", check=False).returncode:
        box.run(f"{CHECKOUT}/scripts/install.sh", timeout_s=300)
    box.run(f"usermod -aG appliance-operators,systemd-journal {OPERATOR}")
    box.run(_RESET, check=False)
    for name, text in profiles.items():
        box.write(f"{_PROFILES}/{name}.toml", text)
    box.run(
        "appliance apply; appliance target ls; systemctl restart appliance-supervisor appliance-health"
    )


SCENES: Final[Mapping[str, Callable[[Box], None]]] = {"bare": bare, "demo": demo, "garage": garage}

"""States of the box in which pages are played."""

import re
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from tests.system.fleet import OPERATOR
from tests.system.rig import Box
from tests.system.rig.appliance import WHEELS
from tests.transcripts.command_check import ROOT

CHECKOUT: Final = "/root/appliance"
"""Directory in which pages are played: a copy of the tracked files."""
INDEX: Final = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS}
"""Environment in which wheels stand for the package index: a box has no network."""
_PHONE: Final = "http://127.0.0.1:8085/garage\n"
_EXAMPLES: Final = ROOT / "profiles"
_PROFILES: Final = "/etc/appliance/profiles"
_RESET: Final = f"""
systemctl start appliance-supervisor.service appliance-gateway.service appliance-health.service
appliance cancel >/dev/null 2>&1; appliance wait >/dev/null 2>&1
rm -rf {_PROFILES}/* /etc/appliance/targets.toml /etc/appliance/canaries/*
rm -rf /etc/systemd/system/appliance-backend-*.d
for kind in key token; do appliance $kind ls | awk 'NR > 1 {{ print $2 }}' | xargs -rn 1 appliance $kind rm; done
"""
_WITHOUT_SETTINGS: Final = """
[ -e /etc/appliance/appliance.toml ] || exit 0
rm /etc/appliance/appliance.toml
appliance apply; systemctl restart appliance-supervisor appliance-health
"""
_PATIENCE_S: Final = 400.0
"""Longest time of a switch on a machine that is busy."""
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
    command = ["tar", "-c", "-C", str(ROOT), "--null", "-T", "-"]
    packed = subprocess.run(command, input=b"\0".join(names), capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(target)], input=packed.stdout, check=True)


def bare(box: Box) -> None:
    """The appliance is not installed; there is somebody who will be an operator."""
    box.run(f"{CHECKOUT}/scripts/install.sh --uninstall --purge", check=False)
    _add_operator(box)


def demo(box: Box) -> None:
    """The example profiles smol and smol-long are applied; smol is live and serves."""
    _apply(
        box,
        {name: (_EXAMPLES / f"{name}.toml").read_text("utf-8") for name in ("smol", "smol-long")},
    )
    _serve(box, "smol", "smol-long")


def garage(box: Box) -> None:
    """The profiles genesis and aeon run the embedded engine; genesis is live and serves; a phone is told."""
    example = (_EXAMPLES / "smol.toml").read_text("utf-8")
    profiles = {}
    for name, port in _GENESIS.items():
        text = re.sub(r"(?m)^port .*", f"port    = {port}", example)
        profiles[name] = re.sub(r"(?m)^description .*", f'description = "the model {name}"', text)
    _apply(box, profiles)
    box.run("appliance target add phone", stdin=_PHONE)
    _serve(box, "genesis", "aeon")


def _add_operator(box: Box) -> None:
    """Add the user who is, or will be, an operator."""
    box.run(f"id -u {OPERATOR} || useradd -m {OPERATOR}")


def _apply(box: Box, profiles: Mapping[str, str]) -> None:
    _add_operator(box)
    if box.run("systemctl is-active phone", check=False).returncode:
        serve = f"/usr/bin/python3 {CHECKOUT}/tests/fakes/ntfy_server.py --port 8085 --print"
        box.run(f"systemd-run -q --unit=phone {serve}")
    if box.run("test -x /usr/local/bin/appliance", check=False).returncode:
        box.run(f"{CHECKOUT}/scripts/install.sh", env=INDEX, timeout_s=900)
    box.run(f"usermod -aG appliance-operators,systemd-journal {OPERATOR}")
    box.run(_RESET, check=False)
    for name, text in profiles.items():
        box.write(f"{_PROFILES}/{name}.toml", text)
    box.run(_WITHOUT_SETTINGS)
    box.run("appliance apply; appliance target ls")


def _serve(box: Box, live: str, standby: str) -> None:
    box.run(f"appliance switch {live}", timeout_s=_PATIENCE_S)
    box.run(f"appliance mark {live} live && appliance mark {standby} standby")
    # What served in the scene before can only go now.
    box.run("appliance apply")


SCENES: Final[Mapping[str, Callable[[Box], None]]] = {"bare": bare, "demo": demo, "garage": garage}

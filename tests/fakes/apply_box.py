"""Machine whose `appliance apply` runs in this process, with its directories below one root."""

import io
from pathlib import Path

from appliance.cli.terminal import Streams, Terminal
from appliance.cli.verbs.apply import apply_profiles
from appliance.install.apply import ApplyOptions
from appliance.model.gateway import Configuration
from appliance.settings.loader import load_settings
from appliance.system.applied.manifest import recover_configuration
from appliance.system.credential_files import FileKeys, FileTokens
from tests.fakes.systemctl import FakeSystemctl


class ApplyBox:
    """A machine's directories, without profiles, keys and tokens."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manager = FakeSystemctl()
        self.out = self.err = ""
        for name in ("profiles", "units", "state"):
            (root / name).mkdir()
        self.keys = FileKeys(root / "state")
        self.tokens = FileTokens(root / "state")

    def apply(self, gateway: str, *, web: str = "", as_json: bool = False, **options: bool) -> int:
        """One apply with these lines in ``[gateway]`` and ``[web]``."""
        file = self.root / "appliance.toml"
        places = {
            "profiles_dir": "profiles",
            "unit_dir": "units",
            "polkit_rule": "50-appliance.rules",
            "applied_dir": "applied",
            "state_dir": "state",
        }
        lines = [f'{key} = "{self.root / place}"' for key, place in places.items()]
        file.write_text("\n".join([*lines, "[gateway]", gateway, "[web]", web]))
        self.manager.calls.clear()
        out, err = io.StringIO(), io.StringIO()
        status = apply_profiles(
            load_settings(file, {}),
            ApplyOptions(**options),
            Streams(out=Terminal(out), err=Terminal(err)),
            as_json=as_json,
            manager=self.manager,
            euid=0,
        )
        self.out, self.err = out.getvalue(), err.getvalue()
        return status

    @property
    def told(self) -> Configuration:
        """Return the configuration that the gateway would read."""
        return recover_configuration(self.root / "applied").content

    def drop_in(self, file: str) -> Path:
        """Return where a drop-in is installed."""
        return self.root / "units" / file

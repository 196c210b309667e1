"""A daemon whose settings cannot be read: what systemd and its clients are told, and how it goes on."""

import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.settings.snapshot import settings_sources
from appliance.settings.wait import SettingsWait
from appliance.system.systemd.daemon import Readiness
from appliance.wire.client import ask
from appliance.wire.control_requests import CONTROL, StatusRequest
from appliance.wire.conversation import RequestRefusedError

PROBLEM = "a.toml:3: unknown key\na.toml:4: another"


def test_a_client_is_told_the_line_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client waits in vain, `systemctl status` has the line, and a corrected file ends the wait."""
    file = tmp_path / "appliance.toml"
    file.write_text("wrong = 1\n")
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    env = {"APPLIANCE_SETTINGS": str(file)}

    def sources() -> Mapping[str, object]:
        return settings_sources(env)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()
        wait = SettingsWait(
            [listener], Readiness(), seen=sources(), sources=sources, look_every_s=0.02
        )
        waiting = threading.Thread(target=wait.wait, args=(PROBLEM,))
        waiting.start()
        try:
            for _ in range(2):
                with pytest.raises(RequestRefusedError, match=r"a\.toml:3: unknown key") as refused:
                    ask(CONTROL, str(tmp_path / "control.sock"), StatusRequest())
                assert refused.value.kind == "settings"
            assert waiting.is_alive()
        finally:
            os.utime(file, ns=(1, 1))
            waiting.join(10)
    assert not waiting.is_alive()
    told.settimeout(0.0)
    messages = [told.recv(4096).decode() for _ in range(2)]
    assert messages[0] == "READY=1"
    assert "STATUS=waits for its settings: a.toml:3: unknown key" in messages[1]
    told.close()


def test_a_browser_is_told_where_to_look(tmp_path: Path) -> None:
    """Over TCP the response is 503 with the command, and nothing of the file; one that is silent is hung up on."""
    file = tmp_path / "appliance.toml"
    file.write_text("wrong = 1\n")
    env = {"APPLIANCE_SETTINGS": str(file)}

    def sources() -> Mapping[str, object]:
        return settings_sources(env)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        wait = SettingsWait(
            [listener], Readiness(), seen=sources(), sources=sources, look_every_s=0.02
        )
        waiting = threading.Thread(target=wait.wait, args=(PROBLEM,))
        waiting.start()
        try:
            with socket.create_connection(place, timeout=10) as silent:
                assert silent.recv(1) == b""
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://{place[0]}:{place[1]}/")
        finally:
            os.utime(file, ns=(1, 1))
            waiting.join(10)
    with refused.value as response:
        assert (response.code, response.headers["Retry-After"]) == (503, "10")
        text = response.read()
    assert text == b"the settings cannot be read: appliance config validate\n"

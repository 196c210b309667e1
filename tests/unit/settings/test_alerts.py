"""Settings of alerts and of watched services."""

from pathlib import Path

import pytest

from appliance.model.errors import SettingsError
from appliance.settings.schema import load_settings


def fault(directory: Path, text: str) -> str:
    """The error of a settings file with this text."""
    file = directory / "appliance.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {})
    return str(caught.value)


def test_every_key_arrives(tmp_path: Path) -> None:
    """Alerts and watches of a file are as it says, durations in seconds."""
    file = tmp_path / "appliance.toml"
    file.write_text(
        '[alerts]\ntime_zone = "Europe/Rome"\nquiet_hours = "22:00-07:00"\nbox_silent_after = "10m"\n'
        'button_url = "https://box.example:8443"\n'
        '[[watch]]\nname = "nas"\nurl = "http://192.0.2.7:9000/live"\nevery = "1m"\n'
        '[[watch]]\nname = "ssh"\nunit = "ssh.service"\nmark = "standby"\n'
    )
    loaded = load_settings(file, {})
    assert loaded.alerts.time_zone == "Europe/Rome"
    assert loaded.alerts.quiet_hours == "22:00-07:00"
    assert loaded.alerts.box_silent_after == 600.0
    assert loaded.alerts.button_url == "https://box.example:8443"
    assert [(one.name, one.url, one.unit, one.mark, one.every) for one in loaded.watch] == [
        ("nas", "http://192.0.2.7:9000/live", None, "live", 60.0),
        ("ssh", None, "ssh.service", "standby", 30.0),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[alerts]\ntime_zone = "No/Where"', "is not a time zone such as Europe/Rome"),
        ('[alerts]\ntime_zone = "../../etc/passwd"', "is not a time zone"),
        ('[alerts]\nquiet_hours = "22-7"', "is not a span of local time such as 22:00-07:00"),
        ('[alerts]\nquiet_hours = "24:00-07:00"', "is not a span of local time"),
        ('[alerts]\nbox_silent_after = "1s"', "box_silent_after"),
        ('[alerts]\nbutton_url = "ftp://box.example"', "is not a URL such as"),
        ('[[watch]]\nname = "a"', "either a url or a unit"),
        (
            '[[watch]]\nname = "a"\nurl = "http://a.example"\nunit = "a.service"',
            "either a url or a unit",
        ),
        (
            '[[watch]]\nname = "a"\nunit = "a.service"\nmark = "liv"',
            'is "live", "standby" or "retired", not "liv"; did you mean "live"?',
        ),
        ('[[watch]]\nname = "A b"\nunit = "a.service"', "is not a name of small letters"),
        ('[[watch]]\nname = "a"\nunit = "a"', "is not the name of a unit"),
        ('[[watch]]\nname = "a"\nunit = "../a.service"', "is not the name of a unit"),
        ('[[watch]]\nname = "a"\nurl = "http://ana:secret@a.example/"', "takes no credential"),
        ('[[watch]]\nname = "a"\nurl = "http://a.example:0/"', "is not a URL"),
        ('[[watch]]\nname = "a"\nurl = "http://a.example:99999/"', "is not a URL"),
        ('[[watch]]\nname = "a"\nurl = "file:///etc/passwd"', "is not a URL"),
        ('[[watch]]\nname = "a"\nurl = "http://a.example/a b"', "is not a URL"),
        ('[[watch]]\nname = "a"\nurl = "http://[::1"', "is not a URL"),
        (
            '[[watch]]\nname = "a"\nunit = "a.service"\n[[watch]]\nname = "a"\nunit = "b.service"',
            "names two entries alike",
        ),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, text: str, expected: str) -> None:
    """Each mistake is one line with the file, and what would be right."""
    told = fault(tmp_path, text)
    assert expected in told
    assert told.startswith(str(tmp_path))
    assert len(told.splitlines()) == 1


def test_a_credential_in_a_watched_address_is_not_repeated(tmp_path: Path) -> None:
    """The message about an address with a password does not show the password."""
    text = '[[watch]]\nname = "a"\nurl = "http://ana:hunter2@a.example/"'
    assert "hunter2" not in fault(tmp_path, text)

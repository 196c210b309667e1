"""Settings: defaults, the file, variables, and what a mistake is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.model.errors import SettingsError
from appliance.settings.schema import Settings, as_table, load_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An empty settings file."""
    path = tmp_path / "appliance.toml"
    path.touch()
    return path


def lines(file: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    """The lines of the error that `text` and `env` get, without the file's directory."""
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, env or {})
    return str(caught.value).replace(f"{file.parent}/", "").splitlines()


def test_a_box_without_a_file_has_the_defaults(file: Path) -> None:
    """An empty file and no file mean the same."""
    assert load_settings(file, {}) == load_settings(None, {"APPLIANCE_SETTINGS": str(file)})
    defaults = load_settings(file, {})
    assert defaults.state_dir == Path("/var/lib/appliance")
    assert defaults.reserved_ports == {8010: "the gateway", 8011: "the status API"}


def test_a_variable_wins_over_the_file(file: Path) -> None:
    """The environment has the last word, for tables too."""
    file.write_text('log_level = "error"\nlook_every_s = "5s"\n[memory]\nmargin = "1GiB"\n')
    env = {
        "APPLIANCE_LOG_LEVEL": "debug",
        "APPLIANCE_MEMORY__MARGIN": "256MiB",
        "APPLIANCE_FOREIGN_UNITS": "vllm.service, ollama.service",
        "OTHER": "x",
    }
    found = load_settings(file, env)
    assert (found.log_level, found.look_every_s) == ("debug", 5.0)
    assert found.memory.margin == 256 << 20
    assert found.foreign_units == ["vllm.service", "ollama.service"]


def test_the_settings_can_be_shown_as_text(file: Path) -> None:
    """Every value has a plain form that TOML and JSON hold."""
    assert as_table(load_settings(file, {}))["control_socket"] == "/run/appliance/control.sock"


@pytest.mark.parametrize(
    ("text", "env", "expected"),
    [
        (
            'a = 1\nstate_dirr = "/x"\n',
            {},
            [
                'appliance.toml:1: unknown key "a"',
                'appliance.toml:2: unknown key "state_dirr"; did you mean "state_dir"?',
            ],
        ),
        (
            '[memory]\nmargn = "1GiB"\n',
            {},
            ['appliance.toml:2: unknown key "margn"; did you mean "margin"?'],
        ),
        ("memory = 3\n", {}, ["appliance.toml:1: memory is a table, not 3"]),
        (
            'state_dir = "here"\n',
            {},
            ['appliance.toml:1: state_dir "here" is not an absolute path without ..'],
        ),
        (
            'foreign_units = ["vllm"]\n',
            {},
            [
                (
                    'appliance.toml:1: foreign_units, item 1, "vllm" is not the name of a unit, '
                    "such as vllm.service"
                )
            ],
        ),
        (
            'look_every_s = "0s"\n',
            {},
            ['appliance.toml:1: look_every_s is at least 0.1, not "0s"'],
        ),
        ("a = \n", {}, ["appliance.toml:1: not TOML: invalid value"]),
        (
            'log_level = "infoo"\n',
            {},
            [
                (
                    'appliance.toml:1: log_level is "debug", "info", "warning" or "error", not '
                    '"infoo"; did you mean "info"?'
                )
            ],
        ),
        *(
            (f'[web]\nlisten = ["{place}"]\n', {}, [f"appliance.toml:2: web.listen, item 1, {why}"])
            for place, why in (
                ("0.0.0.0", '"0.0.0.0" is a wildcard: list the addresses to listen on'),  # noqa: S104
                ("::", '"::" is a wildcard: list the addresses to listen on'),
                ("fe80::1", '"fe80::1" cannot be listened on: list its interface in place of it'),
                ("wg0", '"wg0" is no address; of an interface list the addresses'),
                ("10.0.1", '"10.0.1" is neither an address nor an interface'),
            )
        ),
        (
            "",
            {"APPLIANCE_LOG_LEVL": "info"},
            ['APPLIANCE_LOG_LEVL: no such setting; did you mean "APPLIANCE_LOG_LEVEL"?'],
        ),
        (
            "",
            {"APPLIANCE_GATEWAY__PORT": "80"},
            ['APPLIANCE_GATEWAY__PORT="80": gateway.port is at least 1024'],
        ),
        (
            "",
            {"APPLIANCE_MEMORY": "x"},
            ['APPLIANCE_*: error parsing value for field "memory" from source "EnvSettingsSource"'],
        ),
    ],
)
def test_a_mistake_names_its_place(
    file: Path, text: str, env: dict[str, str], expected: list[str]
) -> None:
    """File and line, or the variable, with a suggestion."""
    assert lines(file, text, env) == expected


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    """Only the default file may be missing."""
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "none.toml", {})


def test_variables_of_others_are_left_alone(file: Path) -> None:
    """Only what looks like one of our settings can be one written wrongly."""
    env = {"APPLIANCE_RIG_DIR": "/x", "APPLIANCE_TESTS_REQUIRE_SYSTEM": "1", "APPLIANCE_": "x"}
    assert load_settings(file, env) == load_settings(file, {})


def test_every_setting_is_described() -> None:
    """No setting without a sentence for the reference."""
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    "modules",
    [
        "appliance.model.spec, appliance.model.profile, appliance.model.amounts",
        "appliance.engines, appliance.profiles.compilation, appliance.profiles.rules",
        "appliance.system.applied.manifest",
        "appliance.supervisor.process",
    ],
)
def test_what_must_start_quickly_or_stay_small_imports_no_pydantic(modules: str) -> None:
    """The core, the manifest and the daemons cost no schema library, and no editor of TOML."""
    check = (
        f"import sys, {modules}; sys.exit(not {{'pydantic', 'tomlkit'}}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0

"""Units that ask engines about their builds."""

from dataclasses import replace

from appliance.model.engine_build import HELP_QUESTION
from appliance.switch.units.backend_unit import render
from appliance.switch.units.build_unit import build_unit
from appliance.switch.units.text import seal_holds, sections_of
from tests.fakes.unit_specs import LAYOUT, made, spec


def service(text: str) -> dict[str, list[str]]:
    (found,) = (s for s in sections_of(text) if s.name == "Service")
    keys = dict.fromkeys(key for key, _ in found.entries)
    return {key: list(found.values(key)) for key in keys}


def backend(name: str = "genesis") -> str:
    (text,) = render([spec(name, "gpu-all")], [], LAYOUT).values()
    return text


def test_a_program_is_asked_as_the_user_of_its_backend_and_sees_no_gpu() -> None:
    """User, environment and view are the backend's; devices, network and leases are not."""
    text = build_unit(
        replace(made("genesis", "gpu-all"), engine="llama-server"), backend(), (), LAYOUT
    )
    unit, theirs = service(text), service(backend())
    assert seal_holds(text)
    for key in ("User", "Group", "DynamicUser", "Environment", "ProtectHome", "SystemCallFilter"):
        assert unit[key] == theirs[key]
    assert unit["PrivateDevices"] == unit["PrivateNetwork"] == ["yes"]
    for key in (
        "DeviceAllow",
        "SupplementaryGroups",
        "BindPaths",
        "ReadWritePaths",
        "StateDirectory",
    ):
        assert key not in unit
    assert not any("/run/appliance-claimed/" in v for v in unit.get("BindReadOnlyPaths", []))
    record = "/var/lib/appliance-applied/builds/genesis.json"
    assert unit["StandardOutput"] == [f"file:{record}"]
    (command,) = unit["ExecStart"]
    assert command.endswith(f"--record {record} --ask {HELP_QUESTION} -- /opt/vllm/bin/vllm")
    assert "Conflicts" not in text


def test_a_drop_in_of_the_backend_counts() -> None:
    """A place that a person shows to the engine is shown to the question, too."""
    applied = made("genesis", "gpu-all")
    drop_in = "[Service]\nBindReadOnlyPaths=/home/ana/lib\n"
    unit = service(build_unit(applied, backend(), (drop_in,), LAYOUT))
    assert "/home/ana/lib" in unit["BindReadOnlyPaths"]


def test_other_engines_have_no_such_unit() -> None:
    """A command is never asked, nor is an engine of another release."""
    for engine in ("command", "xllamacpp", "of-tomorrow"):
        assert build_unit(replace(made("x"), engine=engine), backend("x"), (), LAYOUT) == ""


def test_a_percent_sign_in_a_path_is_not_expanded() -> None:
    """The path of the record is a specifier's place in systemd."""
    layout = replace(LAYOUT, builds_dir="/var/100%")
    assert "StandardOutput=file:/var/100%%/x.json\n" in build_unit(
        made("x"), backend("x"), (), layout
    )

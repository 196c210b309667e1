"""Builds of an engine that rename options: each is asked in a sandbox, started in its own words, or refused."""

import json
from typing import Any, Final

import pytest

from tests.fakes import scripted_llama_server as scripted
from tests.fakes.model_files import LLAMA, llama_tensors, write_gguf
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box, Polling

ENGINE: Final = "/opt/llama/bin/llama-server"
MODEL: Final = "/srv/models/m.gguf"
RECORD: Final = "/var/lib/appliance-applied/builds/l.json"
UNIT: Final = "appliance-build-l.service"
DRAFTS: Final = 'speculative = { method = "ngram", tokens = 2 }'
Build = tuple[str, list[list[str]]]


@pytest.fixture
def fleet(box: Box) -> Fleet:
    """A box with the profile a, which serves, and l, a llama-server that drafts by n-grams."""
    fleet = Fleet(box)
    install(fleet, scripted.BEFORE)
    model = box.root / MODEL.lstrip("/")
    model.parent.mkdir(parents=True)
    write_gguf(model, LLAMA, llama_tensors(0, tied=True))
    profile(fleet)
    fleet.profile("a", 9001)
    fleet.apply()
    fleet.switch("a")
    return fleet


def install(fleet: Fleet, build: Build) -> None:
    """Replace the engine's program, as an upgrade does."""
    fleet.box.write(f"{ENGINE}.new", scripted.text_of(build, "/usr/bin/python3"), mode=0o755)
    (fleet.box.root / f"{ENGINE}.new".lstrip("/")).rename(fleet.box.root / ENGINE.lstrip("/"))


def profile(fleet: Fleet, more: str = DRAFTS) -> None:
    """Write the profile l."""
    fleet.box.write(
        f"{PROFILES}/l.toml",
        f'engine = "llama-server"\nbinary = "{ENGINE}"\nmodel = "{MODEL}"\nport = 9003\ngpus = []\n'
        f'warm_up = "completion"\n{more}\n',
    )


def words(fleet: Fleet) -> list[str]:
    """Return the words with which the engine runs."""
    return fleet.box.run(f"tr '\\0' '\\n' < /proc/{fleet.main_pid('l')}/cmdline").stdout.split("\n")


def asked(fleet: Fleet) -> int:
    """Return how often the engine was asked about its build."""
    return fleet.box.journal("-u", UNIT, "-g", "llama-server is").count(" is b")


def build(fleet: Fleet) -> Any:
    """Return the build in the status of l."""
    answer = fleet.box.run("appliance show l --json").stdout
    return json.loads(answer)["build"]


def test_three_builds_are_started_in_their_own_words(fleet: Fleet) -> None:
    """A switch asks once after each upgrade, and so does a start without the supervisor."""
    assert build(fleet) is None
    fleet.switch("l")
    assert "--draft-max" in words(fleet)
    assert "--cors-origins" not in words(fleet)
    assert build(fleet)["version"] == "b8900 (0123abc)"
    fleet.switch("a")
    fleet.switch("l")
    assert asked(fleet) == 1
    install(fleet, scripted.BETWEEN)
    assert fleet.cli("restart", "l").exit == 0
    assert "--spec-ngram-simple-size-m" in words(fleet)
    assert "--no-cors-credentials" in words(fleet)
    assert asked(fleet) == 2
    install(fleet, scripted.BEFORE)
    # Nobody asks for the unit: the wrapper asks the program itself.
    fleet.box.run("systemctl restart appliance-backend-l.service")
    fleet.wait_serving("l")
    assert "--draft-max" in words(fleet)
    assert asked(fleet) == 2
    install(fleet, scripted.AFTER)
    assert fleet.cli("restart", "l").exit == 0
    assert "--spec-ngram-simple-size-m" in words(fleet)
    assert build(fleet)["version"] == "b11549 (0789abc)"


def test_an_option_that_a_build_lacks_stops_nothing(fleet: Fleet) -> None:
    """The refusal names the key, the option, the build and the nearest option."""
    profile(fleet, 'speculative = { method = "mtp", tokens = 2 }\nextra_args = ["--top-kk", "9"]')
    fleet.apply()
    pid = fleet.main_pid("a")
    answer = fleet.cli("switch", "l", "--dry-run")
    assert answer.exit == 1, answer
    told = answer.result["findings"]
    refused = "\n".join(row["text"] for row in told if row["level"] == "refuse")
    for text in (
        f"speculative.method in l.toml needs --spec-type draft-mtp, which {ENGINE} (b8900 (0123abc))",
        "extra_args in l.toml needs --top-kk",
        "(the nearest is --top-k)",
    ):
        assert text in refused
    answer = fleet.cli("switch", "l")
    assert answer.exit == 1, answer
    assert "--spec-type draft-mtp" in answer.result["message"]
    assert (fleet.active(), fleet.main_pid("a")) == (["a"], pid)
    checked = fleet.box.run("appliance profile validate l 2>&1").stdout
    assert "needs --top-kk" in checked
    polling = Polling(20.0)
    while build(fleet) is None and polling.pause():
        pass  # a status compares files every 10 s
    assert build(fleet)["lacks"] == ["--spec-type draft-mtp", "--top-kk"]
    install(fleet, scripted.AFTER)
    profile(fleet, 'speculative = { method = "mtp", tokens = 2 }')
    fleet.apply()
    fleet.switch("l")
    assert "draft-mtp" in words(fleet)


def test_the_program_is_asked_in_the_sandbox_of_its_unit(fleet: Fleet) -> None:
    """The program runs as the user of the backend, sees no network and no home, and writes nothing of the box."""
    fleet.box.run("mkdir -p /home/ana; touch /home/ana/secret")
    spy = (
        "#!/bin/sh\n"
        "{ echo user $(id -un) $(id -gn); echo net $(ls /sys/class/net); ls -A /home;"
        " for place in /var/lib/appliance-applied/builds /opt/llama /srv /var/cache /var/lib;"
        " do touch $place/x && echo wrote $place; done; } 2>/dev/null | logger -t spy\n"
    )
    fleet.box.write(ENGINE, spy, mode=0o755)
    fleet.cli("switch", "l", "--dry-run")
    told = fleet.box.run("journalctl -q -b -t spy -o cat").stdout.split("\n")
    assert set(told) == {"user apl-l appliance-backend", "net lo", ""}
    owner = fleet.box.run(f"stat -c '%U %a' {RECORD}").stdout.split()
    assert owner == ["root", "644"]
    assert json.loads(fleet.box.run(f"cat {RECORD}").stdout)["problem"]


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (
            "#!/bin/sh\nwhile :; do echo --aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done\n",
            "more than 1 MiB",
        ),
        ("#!/bin/sh\nhead -c 100000 /dev/urandom\n", "does not list --model and --port"),
    ],
)
def test_a_program_that_tells_nonsense_is_told(fleet: Fleet, program: str, problem: str) -> None:
    """An answer that is no help makes the build unknown; the switch goes on and fails by itself."""
    fleet.box.write(ENGINE, program, mode=0o755)
    answer = fleet.cli("switch", "l", "--dry-run")
    warned = [row["text"] for row in answer.result["findings"]]
    assert any(f"the options of {ENGINE} are not known: " in text for text in warned), warned
    assert any(problem in text for text in warned), warned
    assert fleet.active() == ["a"]

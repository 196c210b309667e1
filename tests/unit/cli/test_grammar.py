"""The grammar: usage errors, completion, import budget, and the generated reference."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from site import getsitepackages

import pytest

from appliance.cli.argument_parser import build_parser
from appliance.cli.grammar import VERBS, VerbGrammar
from appliance.cli.grammar_reference import reference
from tests.fakes.cli_box import CliBox
from tests.fakes.control_server import FakeSupervisor
from tests.fakes.profiles import applied

HEAVY = {
    "argcomplete",
    "argparse",
    "asyncio",
    "dbus_fast",
    "httptools",
    "httpx",
    "jinja2",
    "pydantic",
    "pydantic_settings",
    "sqlite3",
    "tomlkit",
    "tomllib",
    "yaml",
}
ROOT = Path(__file__).parents[3]
RESULT = {"event": "result", "exit": 0, "message": "done"}
STATUS: Mapping[str, object] = {
    "host": "garage",
    "version": "0.1.0",
    "supervisor": {"state": "up", "uptime_s": None},
    "committed": [],
    "hold": None,
    "operation": None,
    "last_operation": None,
    "memory": None,
    "profiles": [
        {
            "name": "genesis",
            "mark": "live",
            "description": "",
            "engine": "vllm",
            "endpoint": "127.0.0.1:8022",
            "state": "serving",
            "committed": True,
            "uptime_s": 5.0,
            "status_text": "",
            "note": None,
        }
    ],
    "verdict": {"state": "nothing", "exit": 3, "why": []},
}


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"))
    return box


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("", "the following arguments are required: VERB: appliance --help"),
        ("swich genesis", '"swich" is no verb; did you mean "switch"?: appliance --help'),
        ("switch", "the following arguments are required: NAME: appliance switch --help"),
        ("switch a --timeout soon", '"soon" is no duration; write 30s, 10m or 1h30m'),
        ("switch a --now --drain 3s", "not allowed with argument"),
        ("mark a alive", '"alive" is no mark; did you mean "live"?'),
        ("wait --for ever", '"ever" is no state; one of serving, idle'),
        ("logs -n many", '"many" is no number of lines'),
        ("list --al", 'unknown option "--al"; did you mean "--all"?: appliance list --help'),
        # Not "the following arguments are required", which would be true and no help.
        ("--bogus", 'unknown option "--bogus": appliance --help'),
        ("switch --bogus", 'unknown option "--bogus": appliance switch --help'),
        ("mark a --bogus", 'unknown option "--bogus": appliance mark --help'),
        ("status --jsn", 'unknown option "--jsn"; did you mean "--json"?'),
        ("run --profle a -- ls", 'unknown option "--profle"'),
        ("list -q", 'unknown option "-q": appliance list --help'),
        ("swich --bogus", '"swich" is no verb'),
        ("list -1", "unrecognized arguments: -1"),
        ("key add a --profiles=", '"" has an empty name; write A or A,B: appliance key --help'),
        ("key add a --profiles ,", '"," has an empty name'),
        ("key add a --profiles b,", '"b," has an empty name'),
    ],
)
def test_usage_errors(command: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A usage error exits 2 with one line that says what to type next."""
    with pytest.raises(SystemExit) as ended:
        build_parser(command.split()).parse_args(command.split())
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "read"),
    [
        ("run -- ls --bogus", ["--", "ls", "--bogus"]),
        ("run ls --bogus", ["ls", "--bogus"]),
    ],
)
def test_options_of_a_command_to_run_are_its_own(command: str, read: list[str]) -> None:
    """Words after the command's name are never taken for an option of ours."""
    assert vars(build_parser(command.split()).parse_args(command.split()))["command"] == read


def test_names_complete_from_the_manifest(box: CliBox) -> None:
    """The shell is offered the applied profiles."""
    answer = box.root / "answer"
    done = box.run(
        _ARGCOMPLETE="1",
        COMP_LINE="appliance switch g",
        COMP_POINT="18",
        _ARGCOMPLETE_STDOUT_FILENAME=str(answer),
    )
    assert done.status == 0
    assert answer.read_text().split("\v") == ["genesis "]


def test_uncommit_completes_what_is_committed(box: CliBox) -> None:
    """Also a profile that is not applied any more; one that is applied alone is not offered."""
    (box.root / "state" / "active").write_text("gone\n")
    answer = box.root / "answer"
    line = "appliance uncommit g"
    done = box.run(
        _ARGCOMPLETE="1",
        COMP_LINE=line,
        COMP_POINT=str(len(line)),
        _ARGCOMPLETE_STDOUT_FILENAME=str(answer),
    )
    assert done.status == 0
    assert answer.read_text().split("\v") == ["gone "]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(box: CliBox, shell: str) -> None:
    """The script of each shell asks the installed program, never the first word of what was typed."""
    ended = box.run("completion", shell)
    assert ended.status == 0
    assert "/opt/appliance/current/bin/appliance" in ended.out
    assert not re.search(r"^ +appliance [0-9]>&", ended.out, re.MULTILINE)
    assert 'script=""' not in ended.out


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "status genesis",
        "list",
        "switch genesis",
        "start",
        "stop",
        "restart",
        "hold",
        "cancel",
        "version",
    ],
)
def test_quick_verbs_import_little(box: CliBox, command: str) -> None:
    """Verbs that are used many times a day load no TOML, settings or event loop library."""
    program = (
        f"import sys; sys.path += {[str(ROOT), *getsitepackages()]!r}; from appliance.cli.main import main; "
        f"main({command.split()!r}); print(*sys.modules, file=sys.stderr)"
    )
    stories = {
        verb: [RESULT | ({"status": STATUS} if verb == "status" else {})]
        for verb in ("status", "switch", "start", "stop", "restart", "hold", "cancel")
    }
    with FakeSupervisor(box.socket, stories):
        done = subprocess.run(
            [sys.executable, "-IS", "-c", program],  # as the start script that install.sh writes
            env={**box.environment},
            capture_output=True,
            text=True,
            check=True,
        )
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "appliance.cli.main" in loaded
    assert not HEAVY & {module.partition(".")[0] for module in loaded}


def test_a_request_needs_nothing_that_shows_its_answer() -> None:
    """The display of an operation is imported while the supervisor works on it already."""
    program = "import sys, appliance.cli.verbs.operate; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "appliance.wire.client" in loaded
    assert not {"appliance.cli.operation_follower", "appliance.cli.progress_lines"} & loaded


def test_the_collector_runs_beside_a_verb(box: CliBox) -> None:
    """The garbage collector, which the start script turns off, is on once the imports are done."""
    program = (
        "import gc; gc.disable(); from appliance.cli.main import main; "
        "main(['version']); print(gc.isenabled(), gc.get_freeze_count() > 0)"
    )
    with FakeSupervisor(box.socket, {"status": [RESULT]}):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**box.environment},
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.splitlines()[-1] == "True True"


def test_argparse_alone_goes_without_translations() -> None:
    """A module that imports gettext beside the command line gets the real one."""
    program = (
        "import sys, appliance.cli.argument_parser as g; assert 'gettext' not in sys.modules; "
        "print(g.build_parser().format_usage()); import gettext; print(gettext.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.append({str(ROOT)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("usage: appliance")
    assert done.stdout.splitlines()[-1].endswith("gettext.py")


def test_verbs_are_imported_only_when_run() -> None:
    """Knowing the grammar imports no verb."""
    program = "import sys, appliance.cli.main; from appliance.cli.argument_parser import build_parser as b; b(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "appliance.cli.verbs" not in done.stdout


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_a_verb_alone_is_the_verb_among_all(verb: VerbGrammar) -> None:
    """Building one verb's grammar and building them all is the same to whoever asks for it."""
    usages = []
    for parser in (build_parser([verb.name]), build_parser()):
        (choices,) = (a.choices for a in parser._actions if a.dest == "verb")
        assert isinstance(choices, dict)
        usages.append(choices[verb.name].format_help())
    assert usages[0] == usages[1]


def test_reference_is_current() -> None:
    """docs/reference/cli.md is what the grammar says now."""
    path = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
    assert path.read_text(encoding="utf-8") == reference(), (
        "run: python -m appliance.cli.grammar_reference"
    )

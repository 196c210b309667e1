"""Check of the gateway with the clients that people have, on a booted box with the embedded engine.

The SDKs of OpenAI and Anthropic, LiteLLM and the program llm ask, whole and as a stream, with tools, while a model
serves, through a switch, through one that cuts answers, during a hold and a command of an operator, after a failed
start, with a wrong name and with a wrong key. Each must be answered, or show the sentence that says what to do. Before
that they, LangChain and decoders for JavaScript decode what the gateway adds to streams. All are installed in .cache on
the first run (500 MB, with npm); the first four run in the network of the box. ``make check-clients``, by root.

The table of all that was shown goes to stderr. The last line is one JSON object: ``decodings``, ``asks``, ``failed``.
"""

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from appliance.model.gateway import Refusal
from appliance.routing import refusals
from tests.bench.machine import prepared, report, say
from tests.client_check.streams import check_decoding
from tests.programs import ROOT
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import CHECKOUT, install

VERSIONS: Final[Mapping[str, str]] = {
    "openai": "2.54.0",
    "anthropic": "2.12.0",
    "litellm": "1.106.2",
    "llm": "0.32.1",
}
DECODING: Final = ("langchain-openai==1.7.4",)
"""Packages that only decode streams."""
NEEDED: Final = ("mcp==2.3.0",)
"""Packages that a client imports and does not bring along: LiteLLM, for tools."""
JAVASCRIPT: Final = (
    "openai@6.49.0",
    "@anthropic-ai/sdk@1.14.0",
    "@langchain/core@1.4.0",
    "@microsoft/fetch-event-source@2.0.1",
    "eventsource@4.1.1",
    "eventsource-parser@3.1.1",
)
"""Packages for JavaScript, which only decode streams."""
CLIENTS: Final = tuple(VERSIONS)
NAMES: Final = ("smol", "smol-long")
BROKEN: Final = "broken"
CALLER: Final = "caller"
_MODELS: Final = ("default", *NAMES, BROKEN, CALLER, "smoll")
_CACHE: Final = ROOT / ".cache/check-clients"
_ASKING: Final = Path(__file__).with_name("asking.py")
_DECODING: Final = Path(__file__).with_name("decoding.py")
_TOOL_ENGINE: Final = Path(__file__).with_name("tool_engine.py")
_AT: Final = "http://127.0.0.1:8010"
_AT_ONCE: Final = 4
"""Slots of a model: as many as the clients ask at a time."""
_PROMPT: Final = "Which planet is called the red planet?"
_BROKEN_PROFILE: Final = """
engine = "xllamacpp"
model = "/srv/models/broken.gguf"
port = 8033
need = { ram = "100MiB" }
"""
_CALLER_PROFILE: Final = """
engine = "command"
port = 8034
gpus = []
shared = true
warm_up = "none"
[command]
argv = ["/usr/bin/python3", "-I", "/usr/local/lib/tool-engine.py", "{port}"]
"""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape of a request."""

    stream: bool = False
    tools: bool = False
    long: bool = False

    def __str__(self) -> str:
        words = ("stream" if self.stream else "whole", "tools" if self.tools else "")
        return " ".join(filter(None, (*words, "long" if self.long else "")))


SHAPES: Final = (
    Shape(),
    Shape(stream=True),
    Shape(tools=True),
    Shape(stream=True, tools=True),
)
Check = Callable[[Json, str, Shape], str]
"""Function that returns what is wrong with the outcome of a client's request; empty: nothing is."""


@dataclass(slots=True)
class Asker:
    """The clients' process, and the outcomes of what it was asked."""

    process: subprocess.Popen[str]
    models: list[Json] = field(default_factory=list)
    asks: int = 0
    failed: int = 0

    def begin(
        self, model: str, shapes: Sequence[Shape], clients: Sequence[str] = CLIENTS
    ) -> dict[int, tuple[str, Shape]]:
        """Have clients ask at once; return the client and shape of each ask."""
        assert self.process.stdin is not None
        begun: dict[int, tuple[str, Shape]] = {}
        for client in clients:
            for shape in shapes:
                self.asks += 1
                begun[self.asks] = client, shape
                wanted = {
                    "id": self.asks,
                    "client": client,
                    "model": model,
                    "prompt": _PROMPT,
                    "stream": shape.stream,
                    "tools": shape.tools,
                    "long": shape.long,
                }
                self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        return begun

    def end(self, title: str, begun: dict[int, tuple[str, Shape]], check: Check) -> None:
        """Await the outcomes, say what each client has shown, and count what is wrong."""
        say(f"\n{title}")
        while begun:
            told = self.read()
            client, shape = begun.pop(told["id"])
            wrong = check(told, client, shape)
            self.failed += bool(wrong)
            shown = told["error"] or f"{told['pieces']} pieces, {told['tools']} {told['text']!r}"
            say(
                f"  {'✗' if wrong else '✓'} {client:9} {shape!s:12} {told['took_s']:5.1f} s  {shown}"
            )
            if wrong:
                say(f"      {wrong}")

    def read(self) -> Json:
        """Return the next line of the clients' process."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the clients' process has ended")
        told: Json = json.loads(line)
        return told


def answered(told: Json, client: str, shape: Shape) -> str:
    """Check for an answer: text or a call of the tool, of a stream in pieces."""
    if told["error"]:
        return "an error in place of an answer"
    if not told["text"].strip() and not told["tools"]:
        return "neither text nor a tool"
    is_whole = shape.stream and client != "llm" and told["pieces"] < _FEWEST_PIECES
    return "a stream in one piece" if is_whole else ""


_FEWEST_PIECES: Final = 3


def called(told: Json, client: str, _shape: Shape) -> str:
    """Check for a call of the tool; llm carries it out, and prints what the engine says of its outcome."""
    if told["error"]:
        return "an error in place of an answer"
    if client == "llm":
        return "" if "sunny" in told["text"] else "the outcome of the tool is not shown"
    return "" if told["tools"] == ["weather"] else "the tool was not called"


def refused(refusal: Refusal) -> Check:
    """Return the check for an error that shows the sentence of a refusal."""

    def check(told: Json, _client: str, _shape: Shape) -> str:
        # Some clients print the body, in which quotes are escaped.
        shown = (told["error"] or "").replace('\\"', '"')
        return "" if refusal.message in shown else f"not shown: {refusal.message}"

    return check


def environment() -> Path:
    """Return the directory of the clients' programs, which are installed if need be."""
    programs = _CACHE / "venv/bin"
    stamp = _CACHE / "versions.json"
    packages = [*NEEDED, *DECODING, *(f"{name}=={version}" for name, version in VERSIONS.items())]
    wanted = json.dumps([packages, JAVASCRIPT])
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        venv.create(_CACHE / "venv", with_pip=True, clear=True)
        subprocess.run([programs / "python", "-m", "pip", "install", "-q", *packages], check=True)
        command = ["npm", "install", "--silent", "--no-save", "--prefix", str(_CACHE)]
        subprocess.run([*command, *JAVASCRIPT], check=True)
        stamp.write_text(wanted, "utf-8")
    return programs


@contextmanager
def clients_in(box: Box, programs: Path, key: str) -> Iterator[Asker]:
    """Start the clients in the network of a box."""
    home = _CACHE / "llm"
    home.mkdir(exist_ok=True)
    entry = (
        "- model_id: box-{0}\n  model_name: {0}\n  api_base: {1}/v1\n  api_key_name: box\n"
        "  supports_tools: true\n"
    )
    (home / "extra-openai-models.yaml").write_text("".join(entry.format(m, _AT) for m in _MODELS))
    # Several at once would each make its tables.
    (home / "logs.db").touch()
    place = {"LLM_USER_PATH": str(home), "PATH": "/usr/bin:/bin"}
    subprocess.run([programs / "llm", "logs", "status"], env=place, check=True, capture_output=True)
    keys = home / "keys.json"
    keys.touch(mode=0o600)
    keys.write_text(json.dumps({"box": key}))
    command = [
        *("nsenter", f"--net=/proc/{box.leader}/ns/net"),
        *(str(programs / "python"), str(_ASKING), _AT, str(programs / "llm")),
    ]
    variables = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(home),
        "LLM_USER_PATH": str(home),
        # Not an argument: those are for everybody to read.
        "BOX_KEY": key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            asker = Asker(process)
            asker.models = asker.read()["models"]
            yield asker
        finally:
            process.kill()
            keys.unlink()


def furnish(fleet: Fleet) -> str:
    """Apply the shipped embedded profiles and one that cannot load; return an inference key."""
    for name in NAMES:
        text = (CHECKOUT / f"profiles/{name}.toml").read_text("utf-8")
        # One thread: two that wait for each other make a token take seconds on a busy machine.
        text = text.replace("threads = 2", "threads = 1")
        fleet.box.write(f"{PROFILES}/{name}.toml", f"parallel = {_AT_ONCE}\n{text}")
    fleet.box.write(f"{PROFILES}/{BROKEN}.toml", _BROKEN_PROFILE)
    fleet.box.write("/srv/models/broken.gguf", "this is no model\n" * 100)
    fleet.box.write(f"{PROFILES}/{CALLER}.toml", _CALLER_PROFILE)
    fleet.box.write("/usr/local/lib/tool-engine.py", _TOOL_ENGINE.read_text("utf-8"))
    fleet.apply()
    fleet.switch(NAMES[0])
    fleet.cli("start", CALLER)
    told = fleet.box.run("appliance", "key", "add", "clients").stdout.split()
    return next(word for word in told if word.startswith("apl_"))


def story(fleet: Fleet, asker: Asker) -> None:
    """Have the clients ask through everything that can happen to them."""
    box = fleet.box
    asker.end("a model serves", asker.begin("default", SHAPES), answered)
    asker.end("a model that calls tools", asker.begin(CALLER, SHAPES[2:]), called)

    with box.stream("appliance", "switch", NAMES[1], "--json") as switch:
        _await_phase(switch.lines(), "stop")
        asker.end(
            "through a switch: the requests wait", asker.begin("default", SHAPES[:3]), answered
        )
        switch.wait()

    cut = asker.begin("default", (Shape(stream=True, long=True),), CLIENTS[:3])
    box.wait_for(_IN_FLIGHT.format(len(cut)), timeout_s=60)
    fleet.switch(NAMES[0], "--now")
    asker.end("a switch --now cuts streams", cut, refused(refusals.MODEL_REPLACED))

    box.run("appliance", "switch", BROKEN, check=False)
    failed = refusals.model_failed(BROKEN, is_repaired=False)
    asker.end("after a failed start", asker.begin(BROKEN, SHAPES[:2]), refused(failed))
    asker.end("the model before it serves again", asker.begin("default", SHAPES[:2]), answered)

    down = refusals.model_not_active(NAMES[1], (NAMES[0], CALLER))
    asker.end("a model that is down", asker.begin(NAMES[1], SHAPES[:2]), refused(down))
    names = ", ".join((CALLER, NAMES[0], BROKEN, NAMES[1]))
    unknown = refusals.model_not_found('"smoll"', names, NAMES[0])
    asker.end("a name with a mistake", asker.begin("smoll", SHAPES[:2]), refused(unknown))

    box.run("appliance", "hold", "--for", "10m")
    held = refusals.box_paused(lent=False)
    asker.end("during a hold", asker.begin("default", SHAPES), refused(held))
    fleet.switch(NAMES[0])
    with box.stream("appliance", "run", "--gpus", "none", "--", "sleep", "300") as command:
        box.wait_for("systemctl is-active appliance-run.service", timeout_s=30)
        lent = refusals.box_paused(lent=True)
        asker.end("during a command", asker.begin("default", SHAPES[:2]), refused(lent))
        box.run("appliance", "cancel", check=False)
        command.wait()


_IN_FLIGHT: Final = (
    'appliance status --json | python3 -c \'import json, sys; gateway = json.load(sys.stdin)["gateway"];'
    ' sys.exit(sum(p["in_flight"] for p in gateway["profiles"]) < {})\''
)


def _await_phase(lines: Iterator[str], phase: str) -> None:
    for line in lines:
        if json.loads(line).get("phase") == phase:
            return
    raise SystemExit(f"the switch had no phase {phase}")


def listed(models: Sequence[Json]) -> int:
    """Check the list of models as the OpenAI client reads it; return the number of faults."""
    by_id = {model["id"]: model for model in models}
    found = {
        name: (by_id[name]["status"]["value"], by_id[name].get("context_length"))
        for name in ("default", *NAMES)
        if name in by_id
    }
    say(f"the list of models: {found}")
    wanted = {"default": "loaded", NAMES[0]: "loaded", NAMES[1]: "unloaded"}
    return sum(found.get(name, ("", None))[0] != value for name, value in wanted.items())


def main() -> int:
    """Run the check; the exit status is 1 where a client got neither an answer nor a remedy."""
    programs = environment()
    # Node looks for packages beside the program.
    javascript = shutil.copy(_DECODING.with_suffix(".mjs"), _CACHE)
    decodings, undecoded = check_decoding([[programs / "python", _DECODING], ["node", javascript]])
    with prepared(install) as image, Box(image) as box:
        fleet = Fleet(box)
        key = furnish(fleet)
        with clients_in(box, programs, key) as asker:
            asker.failed += listed(asker.models)
            story(fleet, asker)
        with clients_in(box, programs, f"{key}x") as stranger:
            stranger.end(
                "with a wrong key",
                stranger.begin("default", SHAPES[:2]),
                refused(refusals.KEY_UNKNOWN),
            )
    failed = undecoded + asker.failed + stranger.failed
    report({"decodings": decodings, "asks": asker.asks + stranger.asks, "failed": failed})
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

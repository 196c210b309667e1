"""The demo's story, told in a disposable machine. See demo.sh, which starts it."""  # noqa: INP001  # scripts/ holds programs, not a package

import argparse
import contextlib
import json
import shlex
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.system.rig import (
    Box,
    BoxInUseError,
    RigError,
    Stream,
    stay_behind,
    sweep,
    work_dir,
)
from tests.system.rig.appliance import CHECKOUT, fetch_wheels, install, sources
from tests.system.rig.box import ENVIRONMENT

NAME: Final = "demo"
"""Host name of the machine, and its folder in the working directory."""
EX_TEMPFAIL: Final = 75
EXAMPLES: Final = "/usr/local/share/appliance/profiles"
QUESTIONS: Final = ("What is the largest ocean on Earth?", "Which planet is called the red planet?")
BACK_WITHIN_S: Final = 60.0
TOLD_WITHIN_S: Final = 60.0
PHONE: Final = "/usr/local/lib/demo-phone.py"
"""Program in the box that receives messages as an ntfy server does, and prints them as a phone shows them."""
PHONE_UNIT: Final = "demo-phone"
PHONE_STATE: Final = "/var/tmp/demo-phone.json"  # noqa: S108 - in the box
PHONE_ADDRESS: Final = "http://127.0.0.1:8085/garage"
TRIAL: Final = "[health]\ntrial_speed = 10\n"
"""Settings with which the watchdog looks once a second, as if ten times as much time had passed."""
GATEWAY: Final = "http://127.0.0.1:8010"
"""Address that clients keep, whichever profile serves."""

ASK: Final = """
import json, sys, urllib.request
url, model, question = sys.argv[1:]
body = {"model": model, "max_tokens": 48, "temperature": 0,
        "messages": [{"role": "user", "content": question}]}
request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=60) as response:
    print(json.load(response)["choices"][0]["message"]["content"].strip())
"""
"""Runs in the box, where curl may be missing."""

Json = dict[str, Any]
Leave = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """Outcome of one switch."""

    phases_ms: dict[str, float]
    ms: float


def say(text: str) -> None:
    """Print one line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def chapter(title: str) -> Iterator[None]:
    """Announce what happens, and how long it took."""
    say(f"\n▶ {title}")
    started = time.monotonic()
    yield
    say(f"  {time.monotonic() - started:.1f} s")


def embedded_profiles() -> list[str]:
    """Names of the shipped profiles that run on the embedded engine."""
    found = sorted((CHECKOUT / "profiles").glob("*.toml"))
    return [p.stem for p in found if tomllib.loads(p.read_text()).get("engine") == "xllamacpp"]


def command(box: Box, *argv: str) -> None:
    """Run a command in the box and show it and what it prints."""
    say(f"  $ {shlex.join(argv)}")
    done = box.run(*argv, check=False)
    for line in (done.stdout + done.stderr).splitlines():
        say(f"  {line}")
    if done.returncode:
        raise RigError(f"{shlex.join(argv)} ended with {done.returncode}")


def switch(box: Box, name: str, question: str) -> Switched:
    """`appliance switch NAME`, its phases shown as they end; somebody asks in the middle of it."""
    say(f"  $ appliance switch {name}")
    ended: Json = {}
    with contextlib.ExitStack() as stack:
        asking: Stream | None = None
        stream = stack.enter_context(box.stream("appliance", "switch", name, "--json"))
        for line in stream.lines():
            event: Json = json.loads(line)
            show_event(event)
            if event.get("phase") == "release" and event["state"] == "done":
                asking = stack.enter_context(box.stream(*question_of(question)))
                say(f"             a client asks now: {question}")
            if "exit" in event:
                ended = event
        if stream.wait() or not ended:
            raise RigError(f"the switch to {name} failed: {ended} {stream.errors()}")
        say(f"  {ended['message']}")
        if asking is None:
            raise RigError("the switch never waited for memory")
        show_answer("\n".join(asking.lines()), "the one who asked in the middle of it")
        if asking.wait():
            raise RigError(f"a client got no answer: {asking.errors()}")
    return Switched(phases_ms=ended["phases_ms"], ms=ended["ms"])


def show_event(event: Json) -> None:
    """One line for every phase that begins or ends; what moves in between is left out."""
    if event.get("event") == "phase" and event["state"] in {"done", "skipped", "failed"}:
        say(f"    {event['state']:8} {event['phase']:10} {event['text']:48} {event['ms']:7.0f} ms")


def status(box: Box) -> Json:
    """The status document."""
    document: Json = json.loads(box.run("appliance", "status", "--json", check=False).stdout)
    return document


def serving(document: Json) -> list[str]:
    """Names of the profiles that serve."""
    return [p["name"] for p in document["profiles"] if p["state"] == "serving"]


def question_of(question: str) -> tuple[str, ...]:
    """The command that asks it of whatever serves."""
    return ("python3", "-c", ASK, GATEWAY, "default", question)


def ask(box: Box, question: str) -> str:
    """Ask over the one address that clients keep; the answer."""
    answer = box.run(*question_of(question)).stdout.strip()
    say(f"  Q: {question}")
    show_answer(answer, GATEWAY)
    return answer


def show_answer(answer: str, who: str) -> None:
    """Show it; none at all is a failure."""
    if not answer:
        raise RigError(f"{who}: no answer")
    say(f"  A ({who}): " + answer.replace("\n", "\n     "))


def wait_until_serving(box: Box) -> list[str]:
    """Wait until something serves; its names."""
    deadline = time.monotonic() + BACK_WITHIN_S
    while time.monotonic() < deadline:
        document = status(box)
        if document["verdict"]["state"] == "serving":
            return serving(document)
        time.sleep(0.1)
    raise RigError(f"nothing serves {BACK_WITHIN_S:.0f} s after the reboot")


def story(box: Box, names: list[str]) -> Json:
    """Install, switch, ask, reboot; what the last line reports."""
    with chapter("install, without network"):
        install(box)
        box.run(f"cp {EXAMPLES}/{{{','.join(names)}}}.toml /etc/appliance/profiles/")
    with chapter("turn the profiles into units"):
        command(box, "appliance", "apply")
    answers: dict[str, str] = {}
    last = Switched(phases_ms={}, ms=0.0)
    for name, question in zip(names, QUESTIONS, strict=True):
        with chapter(f"switch to {name}, and ask it"):
            last = switch(box, name, question)
            answers[name] = ask(box, question)
    committed = status(box)["committed"]
    with chapter(f"reboot; committed: {', '.join(committed)}"):
        box.reboot()
        active = wait_until_serving(box)
        ask(box, QUESTIONS[0])
    with chapter("status"):
        command(box, "appliance", "status")
    if active != committed:
        raise RigError(f"{committed} was committed, and {active} is back")
    alert = tell_a_phone(box, active[0])
    return {
        "answers": answers,
        "committed": committed,
        "active_after_reboot": active,
        "phases_ms": last.phases_ms,
        "switch_ms": last.ms,
        **alert,
    }


def tell_a_phone(box: Box, name: str) -> Json:
    """Kill the engine of the live model; show what a phone is told, then and when the model is back."""
    with chapter("a phone (a local server that speaks ntfy's publish API)"):
        box.write(PHONE, (CHECKOUT / "tests" / "fakes" / "ntfy_server.py").read_text("utf-8"))
        flags = f"--port 8085 --state {PHONE_STATE}"
        box.run(f"systemd-run -q --unit={PHONE_UNIT} /usr/bin/python3 {PHONE} {flags}")
        box.write("/etc/appliance/appliance.toml", TRIAL)
        box.run("systemctl restart appliance-health.service")
        say(f"  $ appliance target add phone   ({PHONE_ADDRESS})")
        box.run("appliance", "target", "add", "phone", stdin=f"{PHONE_ADDRESS}\n")
        command(box, "appliance", "mark", name, "live")
        wait_until_serving(box)
        say("  (the watchdog looks ten times as often as usual from here on)")
    with chapter(f"kill the engine of {name}"):
        began = time.monotonic()
        entry = shown_on_phone(box, lambda shown: shown["title"].startswith("▼"), name)
        told_s = time.monotonic() - began
    with chapter(f"{name} comes back"):
        began = time.monotonic()
        over = shown_on_phone(box, lambda shown: shown["title"].startswith("▲"), None)
        back_s = time.monotonic() - began
    if entry["sequence_id"] != over["sequence_id"]:
        raise RigError(f"two entries instead of one: {entry} {over}")
    return {
        "alert": entry["title"],
        "alert_resolved": over["title"],
        "alert_entries": 1,
        "told_s": round(told_s, 1),
        "resolved_s": round(back_s, 1),
    }


def shown_on_phone(box: Box, is_awaited: Callable[[Json], bool], killed: str | None) -> Json:
    """Wait until the phone shows an awaited message, print it, and return it.

    Args:
        box: The box.
        is_awaited: Tells whether a message is the awaited one.
        killed: Profile whose engine is killed whenever it runs meanwhile; None: none.
    """
    deadline = time.monotonic() + TOLD_WITHIN_S
    while time.monotonic() < deadline:
        if killed is not None:
            box.run(f"systemctl kill -s KILL appliance-backend-{killed}.service", check=False)
        text = box.run(f"cat {PHONE_STATE}", check=False).stdout
        entries = json.loads(text)["entries"] if text else []
        for entry in entries:
            shown: Json = entry["shown"]
            if is_awaited(shown):
                say(f"  ┌ {shown['title']}")
                for line in shown["message"].splitlines():
                    say(f"  │ {line}")
                say(f"  └ entry {entry['sequence_id']}, message {entry['messages']}")
                return shown
        time.sleep(0.3)
    raise RigError(f"the phone shows nothing {TOLD_WITHIN_S:.0f} s later")


def keep(box: Box, report: Json, leave: Leave) -> None:
    """Leave the box running, over reboots too, and say how to enter and end it."""
    environment = [f"{k}={v}" for k, v in {**ENVIRONMENT, "TERM": "xterm-256color"}.items()]
    # A nsenter that waits stops with its child, as a shutdown stops all processes for a moment, and then reaps none:
    # the machine would not end while somebody is in it. A shell without job control waits through that.
    shell = ["sh", "-c", "bash -l; exit $?"]
    enter = shlex.join(["-a", "--no-fork", "env", "-i", *environment, *shell])
    # By files: a reboot gives the machine other processes.
    leader, nspawn = (f'"$(cat {work_dir() / box.name / file})"' for file in ("leader", "nspawn"))
    say("\nThe machine keeps running, and may be rebooted.")
    say(f"  enter it: nsenter -t {leader} {enter}")
    say(f"  end it:   kill {nspawn}   (an orderly shutdown; then nothing is left of it)")
    say("\n" + json.dumps(report, ensure_ascii=False))
    leave()
    box.keep()


def main() -> int:
    """Tell the story; 0 when it ends well."""
    parser = argparse.ArgumentParser(prog="scripts/demo.sh", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the machine running")
    if parser.parse_args().keep:
        return stay_behind(tell)
    return tell(None)


def tell(leave: Leave | None) -> int:
    """Tell the story in a new box; `leave`: keep it afterwards, and let the command end with this."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the box is removed
    sweep()
    names = embedded_profiles()[: len(QUESTIONS)]
    try:
        if (work_dir() / NAME).exists():  # before anything is fetched
            raise BoxInUseError(work_dir() / NAME)
        with chapter("fetch the wheels, once"):
            wheels = fetch_wheels()
        say("\n▶ boot a disposable machine")
        with Box(name=NAME, read_only=sources(wheels)) as box:
            say(f"  {box.boot_s:.1f} s")
            try:
                report = story(box, names)
            except RigError:
                say(box.journal("-n60"))
                raise
            if leave is not None:
                keep(box, report, leave)
                return 0
    except RigError as error:
        sys.stderr.write(f"\ndemo.sh: {error}\n")
        return EX_TEMPFAIL if isinstance(error, BoxInUseError) else 1
    finally:
        with contextlib.suppress(OSError):
            work_dir().rmdir()
    say("\n" + json.dumps(report, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())

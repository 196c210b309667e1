"""Pins of what people see on a terminal: each screen at 120, 80 and 40 columns, and in the C locale.

Every file was read by a person before it was stored. A line that is wider than its screen is one word, for the
terminal to wrap.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.fakes.alert_answers import alert_answer, alerts_answer
from tests.pins.appliance_code import (
    VERSION,
    Terminal,
    alerts_lines,
    bench_screen,
    list_screen,
    screen,
)
from tests.pins.cli_scripts import SCREENS
from tests.pins.cli_session import CliSession, cli_session
from tests.pins.frozen_time import utc
from tests.pins.normalisation import ROOT, normal_document
from tests.pins.pin_files import file_name
from tests.pins.status_box import STATES, catalogue_in
from tests.pins.status_documents import observe

WIDTHS: Final = (120, 80, 40)
PLAIN: Final = "C locale"
HEADING: Final = "==== "
STATUSES: Final = (
    "serving",
    "serving two",
    "switching, load",
    "switching, rolling back",
    "rolled back",
    "rolled back in vain",
    "stopped by hand",
    "crashed",
    "crash loop",
    "starts after a crash",
    "failed, oom-kill",
    "waits for its next start",
    "refused by the gate",
    "held",
    "held for a time",
    "a command runs",
    "nothing committed",
    "nothing applied",
    "marks",
    "not in force",
    "failed repair, serves since",
    "refused since the last change",
    "gateway listens",
    "gateway away",
    "traffic",
    "stalled",
    "GPUs",
    "GPUs held by others",
)
"""States whose screen is pinned in every width."""
_NOW_S: Final = 1_795_000_000.0
_REDRAWN: Final = "\r\x1b[2K"


def make() -> dict[str, str]:
    """Make every screen, by file."""
    found = {f"status/{file_name(name)}": _status(name) for name in STATUSES}
    found["alerts.txt"] = _in_every_width(_alerts)
    found["bench.txt"] = _in_every_width(_bench)
    return found | {f"commands/{file_name(name)}": _commands(name) for name in SCREENS}


def _in_every_width(show: Callable[[Terminal], None]) -> str:
    text = ""
    with utc():
        for columns, plain in (*((width, False) for width in WIDTHS), (80, True)):
            out = io.StringIO()
            show(Terminal(stream=out, interactive=True, columns=columns, unicode=not plain))
            text += f"{HEADING}{columns} columns{f', {PLAIN}' if plain else ''}\n{out.getvalue()}"
    return text


def _status(name: str) -> str:
    found, now_unix_s = observe(STATES[name])
    document = normal_document(dict(found), VERSION)

    def show(terminal: Terminal) -> None:
        terminal.write(screen(document, now_unix_s, lambda out: terminal.replaced(stream=out)))
        terminal.line()
        list_screen(document, terminal)

    return _in_every_width(show)


def _alerts(terminal: Terminal) -> None:
    lost = alert_answer(
        _NOW_S - 60,
        alert="A18",
        subject="gpu:1",
        severity="critical",
        fact="GPU 1 has left the bus: NVIDIA GeForce RTX 3090, PCI 0000:41:00.0",
        details=["Xid 79 in the kernel's log"],
        likely="its power supply or its riser",
        command="sudo nvidia-smi -q -d PAGE_RETIREMENT,ECC -i 1",
        sent_unix_s=None,
    )
    silence = {
        "subject": {"kind": "watch", "name": "nas"},
        "until_unix_s": _NOW_S + 1800,
        "by": "ana",
        "reason": "new disks",
    }
    answer = alerts_answer([alert_answer(_NOW_S - 3600), lost], silences=[silence])
    alerts_lines(answer, terminal, _NOW_S)


def _bench(terminal: Terminal) -> None:
    profiles = catalogue_in(Path(ROOT))
    bench_screen(terminal, profiles)
    terminal.line()
    bench_screen(terminal, profiles, invalid="3 real requests came meanwhile")


def _commands(name: str) -> str:
    text = ""
    for columns, locale in (*((width, "C.UTF-8") for width in WIDTHS), (80, "C")):
        more = f", {PLAIN}" if locale == "C" else ""
        text += f"{HEADING}{columns} columns{more}\n"
        with cli_session(catalogue_in, *SCREENS[name].committed) as it:
            it.has_terminal = True
            it.more_environment |= {
                "COLUMNS": str(columns),
                "LC_ALL": locale,
                "TERM": "xterm",
                "NO_COLOR": "1",
            }
            for step in SCREENS[name].steps:
                if isinstance(step, str):
                    text += _shown(it, step)
                else:
                    step(it)
    return text


def _shown(it: CliSession, step: str) -> str:
    done = it.run(*step.split())
    lines = [*_left_standing(done.err), *_left_standing(done.out)]
    return "".join(f"{line}\n" for line in [f"$ appliance {step}", *lines])


def _left_standing(text: str) -> list[str]:
    """Return the lines of a terminal after all redrawing."""
    return [line.rpartition(_REDRAWN)[2] for line in text.split("\n")[:-1]]

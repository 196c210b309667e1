"""Typist at interactive shells, in a box: ``python3 shell_typist.py``, a JSON list of lines on stdin.

Standard library only. Each line is typed on a terminal of its own, into a shell that has just begun, with Tab at its
end. A key of the shell's line editor then writes what stands on the line into a file: the editor reads keys in their
order, so by then the completion is done. The last line of output is JSON: for each what stood there, what the
terminal showed and the milliseconds from Tab to that key.

A line with ``"enter": true`` is run instead, which shows that a line of these shells is run when somebody wants it.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PATIENCE_S = 60.0
HOME = Path("/run/typist")
TYPED = HOME / "typed"
KEY = b"\x14"
"""Ctrl-T, at which each shell writes its line into `TYPED`."""
READY = "ready>"
ESCAPES = re.compile(r"\x1b(?:\[[0-9;?>=]*[a-zA-Z]|\][^\x07]*\x07|[()=>].?)")
BASH: Final = f"""
source /usr/share/bash-completion/bash_completion
PS1='{READY}'
bind 'set show-all-if-ambiguous on'
write_line() {{ printf %s "$READLINE_LINE" >{TYPED}.new && mv {TYPED}.new {TYPED}; }}
bind -x '"\\C-t": write_line'
"""
ZSH: Final = f"""
autoload -Uz compinit; compinit -D -u
PS1='{READY}'
write_line() {{ print -rn -- "$BUFFER" >{TYPED}.new && mv {TYPED}.new {TYPED}; }}
zle -N write_line; bindkey '^T' write_line
"""
FISH: Final = f"""
function fish_prompt; echo -n '{READY}'; end
function fish_greeting; end
function write_line; printf %s (commandline) >{TYPED}.new; mv {TYPED}.new {TYPED}; end
bind \\ct write_line
"""
STARTS: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "bash": (".bashrc", BASH, ("/bin/bash", "--rcfile", f"{HOME}/.bashrc", "-i")),
    "zsh": (".zshrc", ZSH, ("/bin/zsh", "-i")),
    "fish": (".config/fish/config.fish", FISH, ("/usr/bin/fish", "-i")),
}
"""File that each shell reads when it begins, its text, and the shell's command."""


class Terminal:
    """Terminal of one shell."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.screen = ""

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._number, keys)

    def watch(self, wait_s: float) -> None:
        """Take what the shell shows; return after a first piece, or after the time."""
        if select.select([self._number], [], [], wait_s)[0]:
            try:
                piece = os.read(self._number, 65536).decode(errors="replace")
            except OSError as error:
                raise SystemExit(f"the shell has ended: {self.screen}") from error
            self.screen += ESCAPES.sub("", piece)

    def until(self, text: str) -> None:
        """Wait until the shell has shown some text."""
        end_s = time.monotonic() + PATIENCE_S
        while text not in self.screen:
            if time.monotonic() > end_s:
                raise SystemExit(f"the shell does not show {text!r}: {self.screen!r}")
            self.watch(0.1)

    def line(self) -> str:
        """Return what stands on the line, once the shell has written it."""
        end_s = time.monotonic() + PATIENCE_S
        while not TYPED.exists():
            if time.monotonic() > end_s:
                raise SystemExit(f"the shell does not take keys: {self.screen!r}")
            self.watch(0.002)
        text = TYPED.read_text()
        TYPED.unlink()
        return text


@contextmanager
def terminal(shell: str, directory: str) -> Iterator[Terminal]:
    """Begin a shell on a terminal of 200 columns; it is ended in any case."""
    file, text, command = STARTS[shell]
    (HOME / file).parent.mkdir(parents=True, exist_ok=True)
    (HOME / file).write_text(text)
    environment = {
        "HOME": str(HOME),
        "PATH": os.environ["PATH"],
        "TERM": "xterm",
        "LANG": "C.UTF-8",
    }
    pid, number = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.execve(command[0], command, environment)  # noqa: S606 - no shell is wanted around a shell
    fcntl.ioctl(number, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    try:
        shown = Terminal(number)
        shown.until(READY)
        yield shown
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(number)


def typed(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what became of one line."""
    with terminal(case["shell"], case["directory"]) as shown:
        shown.screen = ""
        shown.type(case["line"].encode())
        if case.get("enter"):
            shown.type(b"\r")
            shown.until(READY)
            return {"line": "", "screen": shown.screen, "ms": 0.0}
        shown.type(b"\t")
        began_s = time.monotonic()
        shown.type(KEY)
        line = shown.line()
        ms = (time.monotonic() - began_s) * 1000
        shown.watch(0.05)  # real time: what is left of the screen
        return {"line": line, "screen": shown.screen, "ms": ms}


if __name__ == "__main__":
    HOME.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(json.dumps([typed(case) for case in json.load(sys.stdin)]) + "\n")

"""Verb `appliance edit`: edit a copy, check it, show the difference, install it, apply.

Keys that earlier releases had are taken out of the copy first.
The copy lies in a folder of its own beside copies of the other profiles, so that it is checked
together with them. A copy with errors is kept, and its path is printed.
"""

import difflib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from appliance.cli.apply_screen import apply_profiles
from appliance.cli.arguments import Arguments
from appliance.cli.failures import CliError, need_root
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.install.apply import ApplyOptions
from appliance.install.profile_specs import layout_of, load_specs, renderable
from appliance.model.errors import UnknownProfileError
from appliance.model.names import is_profile_name
from appliance.model.wording import no_such_profile
from appliance.settings.loader import load_settings
from appliance.settings.tables import Settings
from appliance.system.files.durable import read_regular, write_file
from appliance.system.profile_files.loading import SUFFIX
from appliance.system.systemd.systemctl import Systemctl
from appliance.system.toml.editing import migrated
from appliance.wire.control import Exit

_EDITORS: Final = ("sensible-editor", "editor", "nano", "vi")
_COLOURS: Final = {"+": Style.GREEN, "-": Style.RED, "@": Style.DIM}


def run(arguments: Arguments, streams: Streams) -> int:
    """Edit one profile and apply it."""
    if os.geteuid() != 0:
        raise need_root(f"edit {arguments.name}")
    settings = load_settings()
    path = profile_path(settings, arguments.name)
    before = read_regular(path)
    if before is None:
        raise CliError(f"{path} is no regular file: edit what it points to", Exit.CONFIG)
    # With --json stdout is for the report of an apply alone.
    shown = streams.err if arguments.json else streams.out
    with _copies(settings.profiles_dir) as folder:
        copy = folder / path.name
        newer, gone = migrated(before)
        if gone:
            write_file(copy, newer)
        for key, reason in gone.items():
            shown.line(f"{key} is taken out: {reason}")
        after = _edited(copy, settings, streams)
        if after == before:
            shown.line("nothing was changed")
            return int(Exit.OK)
        _show_difference(path.name, before, after, shown)
        if not arguments.yes:
            _need_agreement(copy, streams)
        if read_regular(path) != before:
            raise _kept(copy, f"{path} was changed by another program meanwhile")
        write_file(path, after, like=path.stat())
    return apply_profiles(settings, ApplyOptions(), streams, as_json=arguments.json)


def profile_path(settings: Settings, name: str) -> Path:
    """Return the path of a profile's file. Raises `UnknownProfileError`: there is none."""
    path = settings.profiles_dir / f"{name}{SUFFIX}"
    if not is_profile_name(name) or not path.exists():
        known = [p.stem for p in settings.profiles_dir.glob(f"*{SUFFIX}")]
        raise UnknownProfileError(no_such_profile(name, known))
    return path


@contextmanager
def _copies(profiles: Path) -> Iterator[Path]:
    """Return a private folder with a copy of every profile, which stays after an error."""
    folder = Path(tempfile.mkdtemp(prefix="appliance-edit-"))
    for profile in profiles.glob(f"*{SUFFIX}"):
        if profile.is_file():
            shutil.copy(profile, folder)
    yield folder
    shutil.rmtree(folder)


def _edited(copy: Path, settings: Settings, streams: Streams) -> str:
    """Return the copy's text once it is valid. Raises `CliError` when the user gives up."""
    while True:
        _run_editor(copy)
        if error := _error(copy, settings):
            streams.err.line(error)
            # Without a terminal no person can correct the copy: the editor would be started for
            # ever.
            if not sys.stdin.isatty() or not _agreed("edit it again? [Y/n] ", streams):
                raise _kept(copy, "not applied", Exit.CONFIG)
            continue
        return read_regular(copy) or ""


def _run_editor(copy: Path) -> None:
    command = _editor()
    try:
        done = subprocess.run([*command, str(copy)], check=False)  # noqa: S603 - the owner's own editor
    except OSError as error:
        raise CliError(
            f"{command[0]} cannot be run ({error.strerror}): set EDITOR", Exit.FAILED
        ) from error
    if done.returncode != 0:
        raise _kept(copy, f"{command[0]} ended with status {done.returncode}")


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named:
        return shlex.split(named)
    found = next((e for e in _EDITORS if shutil.which(e)), None)
    if found is None:
        raise CliError("no editor found: set EDITOR", Exit.FAILED)
    return [found]


def _error(copy: Path, settings: Settings) -> str:
    """Return the errors of the copy among the other profiles; empty: none."""
    there = replace(settings, profiles_dir=copy.parent)
    loaded = renderable(load_specs(there), layout_of(there, Systemctl().version()))
    return loaded.errors.get(copy.stem, "")


def _show_difference(name: str, before: str, after: str, out: Terminal) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} (now)", f"{name} (new)", lineterm=""
    )
    for line in lines:
        out.line(out.paint(line, _COLOURS.get(line[:1], Style.PLAIN)))


def _need_agreement(copy: Path, streams: Streams) -> None:
    """Ask a person at a terminal. Raises `CliError` when nobody agrees, or nobody can be asked."""
    if not sys.stdin.isatty():
        raise _kept(
            copy, "not applied: there is no terminal to ask on; --yes applies without asking"
        )
    if not _agreed("put it in place and apply it? [Y/n] ", streams):
        raise _kept(copy, "not applied")


def _agreed(question: str, streams: Streams) -> bool:
    """Ask for agreement at a terminal."""
    streams.err.write(question)
    answer = sys.stdin.readline()  # empty: the terminal has closed, or Ctrl-D
    return answer.strip().lower() in {"", "y", "yes"} if answer else False


def _kept(copy: Path, why: str, status: int = Exit.FAILED) -> CliError:
    return CliError(f"{why}; your text is kept in {copy}", status)

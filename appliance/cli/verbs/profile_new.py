"""Verb `appliance profile new`: a profile for a model, of an example or proposed for this box.

The file goes into the box's profiles, or is printed; none is replaced without ``--force``.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from appliance.cli.arguments import Arguments
from appliance.cli.failures import CliError, need_root
from appliance.cli.profile_making import (
    NewProfile,
    NewProfileRequest,
    ProfileMaking,
    host_facts,
    path_in,
    refuse_existing,
    written,
)
from appliance.cli.table import Column, fitted
from appliance.cli.terminal import Streams
from appliance.model.names import is_profile_name
from appliance.model.wording import short
from appliance.profiles.proposing.example_changes import KeyChange
from appliance.settings.loader import load_settings
from appliance.system.profile_files.drafts import change_of
from appliance.system.profile_files.example_library import example_names, example_text
from appliance.system.profile_files.loading import NAME_RULE
from appliance.system.toml.file import parse_document
from appliance.wire.control import Exit


class ExampleEntry(TypedDict):
    """Profile of the library of examples."""

    name: str
    description: str
    """Model and hardware that the example is for."""
    engine: str
    model: str
    """Model in the example, which another one takes the place of."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Make a profile, and write or print it; or list the examples."""
    if arguments.list:
        return _list_examples(arguments, streams)
    request = _request(arguments)
    settings = load_settings()
    directory = settings.profiles_dir if arguments.output is None else Path(arguments.output)
    path = None if arguments.dry_run else path_in(directory, request.name)
    if path is not None:
        _check_writable(arguments, path)
    host = host_facts(settings, settings.profiles_dir, replaced=request.name)
    made = ProfileMaking(request, settings, host).made()
    if path is not None:
        written({made.name: made.text}, directory, force=arguments.force)
    _print(made, path, arguments, streams)
    if path is not None and not arguments.json:
        streams.out.line(f"{path} is written; {_next(path, is_own=arguments.output is None)}")
    return int(Exit.OK)


def _request(arguments: Arguments) -> NewProfileRequest:
    if len(arguments.targets) != 1:
        raise CliError(
            "name one profile: appliance profile new NAME --model PATH; --list has the examples",
            Exit.USAGE,
        )
    (name,) = arguments.targets
    if not is_profile_name(name):
        raise CliError(f'"{short(name)}" is no profile name: {NAME_RULE}', Exit.USAGE)
    return NewProfileRequest(
        name=name,
        example=arguments.example,
        model=arguments.model,
        tokens=arguments.ctx,
        changes=tuple(map(_change, arguments.set or ())),
    )


def _change(text: str) -> KeyChange:
    found = change_of(text)
    if found is None:
        raise CliError(f'"{short(text)}" is not of the form KEY=VALUE', Exit.USAGE)
    return found


def _check_writable(arguments: Arguments, path: Path) -> None:
    """Raise `CliError` where the file could not be written, before anything is read."""
    if not arguments.force:
        refuse_existing([path])
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK, effective_ids=True):
        raise need_root(f"profile new {shlex.join(_words(arguments))}")


def _words(arguments: Arguments) -> Iterator[str]:
    """Yield the words of the command line that is to be repeated."""
    yield from arguments.targets
    options = {
        "--from": arguments.example,
        "--model": arguments.model,
        "--ctx": arguments.ctx,
        "--output": arguments.output,
    }
    for option, value in options.items():
        if value is not None:
            yield from (option, str(value))
    for change in arguments.set or ():
        yield from ("--set", change)
    if arguments.force:
        yield "--force"


def _print(made: NewProfile, path: Path | None, arguments: Arguments, streams: Streams) -> None:
    if arguments.json:
        streams.out.document(replace(made, file=None if path is None else str(path)))
    elif path is None:
        streams.out.content(made.text)
        streams.out.stream.flush()
    for note in made.notes:
        streams.err.line(note)


def _next(path: Path, *, is_own: bool) -> str:
    """Return the commands that follow."""
    if not is_own:
        return f"next: appliance profile validate {shlex.quote(str(path))}"
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"next: {sudo}appliance apply && appliance switch {path.stem}"


def _list_examples(arguments: Arguments, streams: Streams) -> int:
    rows: list[ExampleEntry] = []
    for name in example_names():
        table = parse_document(example_text(name).encode()).table
        description, engine, model = (
            str(table.get(key, "")) for key in ("description", "engine", "model")
        )
        rows.append(ExampleEntry(name=name, description=description, engine=engine, model=model))
    if arguments.json:
        streams.out.document(rows)
        return int(Exit.OK)
    columns = (
        Column(head="EXAMPLE"),
        Column(head="ENGINE", spare=1),
        Column(head="FOR", least=16),
    )
    cells: Sequence[Sequence[str]] = [
        (row["name"], row["engine"], row["description"]) for row in rows
    ]
    for line in fitted(columns, cells, streams.out).lines():
        streams.out.line(line)
    return int(Exit.OK)

"""Verb `appliance config`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from appliance.cli.arguments import Arguments
from appliance.cli.paths import settings_path
from appliance.cli.terminal import Streams
from appliance.settings.loader import as_table, load_settings
from appliance.wire.control import Exit


def run(arguments: Arguments, streams: Streams) -> int:
    """Show the settings in force, check them, or print where they are."""
    path = Path(settings_path())
    if arguments.action == "path":
        return _say({"path": str(path)}, str(path), arguments, streams)
    table = as_table(load_settings())
    if arguments.action == "show":
        return _say(table, "\n".join(_lines(table)), arguments, streams)
    exists = "" if path.exists() else " (no such file: every setting has its default)"
    return _say({"path": str(path), "ok": True}, f"{path}: ok{exists}", arguments, streams)


def _say(document: Mapping[str, object], text: str, arguments: Arguments, streams: Streams) -> int:
    if arguments.json:
        streams.out.document(document)
    else:
        streams.out.write(f"{text}\n")
    return int(Exit.OK)


def _lines(table: Mapping[str, object]) -> Iterator[str]:
    """Return the settings as lines of a file; defaults are comments. Tables come last, as in TOML."""
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    for key, value in table.items():
        if key not in inner:
            yield _line(key, value)
    for key, values in inner.items():
        yield f"[{key}]"
        yield from _lines(values)


def _line(key: str, value: object) -> str:
    # Strings, numbers, lists and booleans of JSON are those of TOML too.
    return f"# {key} is not set" if value is None else f"{key} = {json.dumps(value)}"

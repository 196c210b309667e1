"""Changes to the file of the targets that keep its comments and order."""

from collections.abc import Iterator
from typing import Any

import tomlkit
from tomlkit.items import AoT
from tomlkit.toml_document import TOMLDocument

from appliance.model.targets import Target

_TABLE = "target"


def with_target(text: str, target: Target) -> str:
    """Return the text of the file, which is valid, with one more target."""
    document = tomlkit.parse(text)
    table = tomlkit.table()
    table.add("name", target.name)
    table.add("url", target.url)
    table.add("min_severity", target.min_severity.value)
    if target.click_url:
        table.add("click", target.click_url)
    if target.box_silent is not None:
        table.add("box_silent", target.box_silent)
    rows = document.get(_TABLE)
    if not isinstance(rows, AoT):
        document.pop(_TABLE, None)  # target = []
        rows = tomlkit.aot()
        document.append(_TABLE, rows)
    rows.append(table)
    return tomlkit.dumps(document)


def without_target(text: str, name: str) -> str:
    """Return the text of the file, which is valid, without a target."""
    document = tomlkit.parse(text)
    rows: Any = document.get(_TABLE, [])
    for number in reversed([*_numbers(document, name)]):
        del rows[number]
    if not len(rows):
        document.pop(_TABLE, None)
    return tomlkit.dumps(document)


def _numbers(document: TOMLDocument, name: str) -> Iterator[int]:
    for number, row in enumerate(document.get(_TABLE, [])):
        if row.get("name") == name:
            yield number


def with_heartbeat(text: str, url: str) -> str:
    """Return the text of the file, which is valid, with another ``heartbeat_url``; empty: none."""
    document = tomlkit.parse(text)
    if not url:
        document.pop("heartbeat_url", None)
    elif "heartbeat_url" in document:
        document["heartbeat_url"] = url
    else:
        # Above the tables: below one it would be a key of that.
        first = f"heartbeat_url = {tomlkit.item(url).as_string()}\n"
        return first + text
    return tomlkit.dumps(document)

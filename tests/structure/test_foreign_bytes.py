"""Foreign bytes become objects in the places that the page names, by one reader a format."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.source_tree import SourceFile, SourceTree, read_tree

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/foreign-bytes.md"
READERS = {
    "decode_json",
    "parse_object",
    "read_document",
    "parse_document",
    "read_yaml",
}
"""Functions that read a format within bounds. A module that calls one is a place of the page."""
PARSERS = {
    "_json": {"make_scanner"},
    "ast": {"parse", "literal_eval"},
    "builtins": {"eval", "exec", "compile"},
    "csv": {"reader", "DictReader"},
    "dbus_fast": None,
    "http.client": None,
    "httptools": None,
    "httpx": {
        "AsyncClient",
        "AsyncHTTPTransport",
        "Client",
        "HTTPTransport",
        "get",
        "post",
        "request",
        "stream",
    },
    "json": {"load", "loads", "JSONDecoder", "decoder", "scanner"},
    "json.decoder": None,
    "json.scanner": None,
    "msgspec": {"json", "msgpack", "toml", "yaml"},
    "pydantic": {"TypeAdapter"},
    "sqlite3": None,
    "struct": {"Struct", "iter_unpack", "unpack", "unpack_from"},
    "tomlkit": {"load", "loads", "parse"},
    "tomllib": None,
    "urllib.parse": {"parse_qs", "parse_qsl"},
    "yaml": None,
    **dict.fromkeys(
        ("bz2", "configparser", "dill", "gzip", "lzma", "marshal", "pickle", "plistlib")
    ),
    **dict.fromkeys(("shelve", "tarfile", "xml", "zipfile", "zlib", "zstandard")),
}
"""Parsers by package; None: whatever is taken from it. A module with one is a place of the page."""
HARMLESS = {"crc32", "Connection", "Row", "Error", "HTTPStatus"}
"""Names that parse nothing, taken from a package that does."""


def tree(**texts: str) -> SourceTree:
    """A package `p` with these modules."""
    return SourceTree(files=[SourceFile(name=f"p.{n}", text=text) for n, text in texts.items()])


def uses(file: SourceFile) -> Iterator[str]:
    """Yield each parser or reader that a module takes, as ``package.name``; imports for types do not count."""
    aliases = dict[str, str]()
    for node in ast.walk(file.syntax):
        match node:
            case ast.Import(names=names):
                aliases |= {alias.asname or alias.name: alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    if _parses(module, alias.name) or alias.name in READERS:
                        yield f"{module}.{alias.name}"
                    aliases[alias.asname or alias.name] = f"{module}.{alias.name}"
            case _:
                pass
    for node in ast.walk(file.syntax):
        match node:
            case ast.Attribute(value=value, attr=name):
                written = ast.unparse(value)
                if _parses(aliases.get(written, ""), name):
                    yield f"{aliases[written]}.{name}"
            case ast.Call(func=ast.Name(id=name)) if _parses("builtins", name):
                yield f"builtins.{name}"
            case _:
                pass


def _parses(package: str, name: str) -> bool:
    for known, names in PARSERS.items():
        if package == known or (names is None and package.startswith(f"{known}.")):
            return name not in HARMLESS and (names is None or name in names)
    return False


def places(found: SourceTree) -> set[str]:
    """Return the paths of modules that make objects of bytes."""
    return {f"{file.name.replace('.', '/')}.py" for file in found.files if next(uses(file), None)}


def listed() -> list[str]:
    """Return the modules in the first column of the page's tables."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return [path for row in rows for path in re.findall(r"`([^`]+\.py)`", row.split(" | ")[0])]


def test_every_place_is_on_the_page_with_its_bound() -> None:
    """The page names each module of the program that parses, once, and no other."""
    named = listed()
    assert len(named) == len(set(named))
    assert set(named) == {
        place.removeprefix("appliance/") for place in places(read_tree(ROOT / "appliance"))
    }


def test_json_is_parsed_by_the_reader_alone() -> None:
    """No module of the program but the reader parses JSON; the page names the exceptions and their reasons."""
    own = {
        file.name
        for file in read_tree(ROOT / "appliance").files
        if any(use.startswith(("json.", "_json.make")) for use in uses(file))
    }
    assert own == {
        "appliance.model.json_reader",
        "appliance.system.apprise_program",
        "appliance.routing.json_scanner",
    }


@pytest.mark.parametrize(
    "text",
    [
        "import json\njson.loads(b'')",
        "import json as j\nj.load",
        "from json import loads",
        "from json.decoder import scanstring",
        "def f():\n    import pickle\n    pickle.loads(b'')",
        "import struct\nstruct.unpack_from",
        "from yaml import parse",
        "import tomllib\ntomllib.loads('')",
        "eval('1')",
        "from p.reader import decode_json",
        "import http.client\nhttp.client.HTTPConnection",
    ],
)
def test_each_way_to_parse_is_found(text: str) -> None:
    """A module with a parser, however it is imported, is a place."""
    assert places(tree(a=text)) == {"p/a.py"}


def test_what_parses_nothing_is_no_place() -> None:
    """Writers, checksums and types are no places."""
    text = "import json\nfrom zlib import crc32\nimport re\njson.dumps(1)\nre.compile('')\n"
    assert not places(tree(a=text))

"""Record of an engine's build: what is written is read, and nothing else."""

import json

import pytest

from appliance.model.engine_build import EngineBuild
from appliance.wire.build_record import MOST_OPTIONS, BuildRecord, decoded, encoded

RECORD = BuildRecord(
    program="/opt/l",
    build=EngineBuild(
        version="b11549 (0789abc)",
        options={"--metrics": None, "--fit": ("on", "off"), "-c": ()},
        removed={"--draft": "use --spec-draft-n-max"},
        asked_unix_s=1.75e9,
    ),
    stamps={"/opt/l": (1, 2, 3, 4), "/opt/missing": None},
)


def test_a_record_is_read_as_it_was_written() -> None:
    """Version, options with their values, removed options and stamps come back."""
    record = decoded(encoded(RECORD))
    assert record is not None
    assert (record.program, record.stamps) == (RECORD.program, RECORD.stamps)
    for name in EngineBuild.__slots__:
        assert getattr(record.build, name) == getattr(RECORD.build, name)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("version", 7),
        ("program", None),
        ("asked_unix_s", float("nan")),
        ("asked_unix_s", 1e300),
        ("asked_unix_s", "now"),
        ("options", []),
        ("options", {"not an option": []}),
        ("options", {"--x": [1]}),
        ("options", {"--x": 7}),
        ("options", {f"--x{i}": None for i in range(MOST_OPTIONS + 1)}),
        ("removed", {"--x": []}),
        ("stamps", {"/x": [float("inf")]}),
        ("stamps", {"/x": 3}),
        ("stamps", {f"/{i}": None for i in range(17)}),
        ("stamps", None),
    ],
    ids=range(16),
)
def test_a_damaged_record_is_none(key: str, value: object) -> None:
    """A record that says what cannot be true is as if absent."""
    document = json.loads(encoded(RECORD))
    document[key] = value
    assert decoded(json.dumps(document)) is None


@pytest.mark.parametrize("text", ["", "[", "[]", "null", "[" * 100_000])
def test_what_is_no_record_is_none(text: str) -> None:
    """Half a file, or another document, is as if absent."""
    assert decoded(text) is None


def test_texts_are_cut_and_printable() -> None:
    """Text of a program cannot move a terminal's cursor, nor fill the screen."""
    document = json.loads(encoded(RECORD))
    document["version"] = "b1\x1b[2J" + "x" * 1000
    record = decoded(json.dumps(document))
    assert record is not None
    assert record.build.version.startswith("b1[2Jx")
    assert len(record.build.version) < 201

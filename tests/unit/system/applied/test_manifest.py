"""Manifest and gateway.json: content comes back as it was applied, and damage is reported."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.errors import StoreError
from appliance.model.gateway import Configuration, Limits
from appliance.model.profile import Applied, Deadlines, Endpoint, Estimate, Handling, Need, WarmUp
from appliance.model.words import Mark
from appliance.system.applied.manifest import (
    GATEWAY_FILE,
    MANIFEST,
    DamageWatch,
    EditWatch,
    ManifestProfiles,
    copy_of,
    decode_configuration,
    decode_manifest,
    encode_configuration,
    encode_manifest,
    read_manifest,
    recover_configuration,
)
from tests.fakes.unit_specs import made, one_of_each

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
SECONDS = st.floats(0, 1e6, allow_nan=False)
COUNT = st.none() | st.integers(0, 1 << 50)
SIZE = st.integers(0, 1 << 50)
ESTIMATE = st.builds(
    Estimate,
    vram_bytes=SIZE,
    least_vram_bytes=SIZE,
    ram_bytes=SIZE,
    notes=st.lists(TEXT).map(tuple),
)
JSON = st.recursive(
    st.none() | st.booleans() | SIZE | st.floats(0, 2) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
HANDLING = st.builds(
    Handling,
    set_parameters=st.dictionaries(TEXT, JSON, max_size=3),
    strip_parameters=st.lists(TEXT).map(tuple),
    on_request=st.booleans(),
    engine_key_file=st.none() | TEXT,
)
ENTRY = st.builds(
    made,
    st.just("a"),
    st.sampled_from(["cpu", "gpu-all", "gpu-7"]),
    description=TEXT,
    model=TEXT,
    model_path=st.none() | TEXT,
    served=st.lists(TEXT).map(tuple),
    endpoint=st.builds(Endpoint, port=SIZE) | st.builds(Endpoint, socket=TEXT),
    need=st.builds(Need, vram_bytes=COUNT, ram_bytes=COUNT),
    deadlines=st.builds(Deadlines, no_progress_s=SECONDS, stop_s=SECONDS),
    warm_up=st.sampled_from(WarmUp),
    first_mark=st.sampled_from(Mark),
    conflicts=st.lists(TEXT).map(tuple),
    fingerprint=TEXT,
    gpus=st.just("all") | st.lists(st.integers(0, 63)).map(tuple),
    gpu_split=st.lists(SECONDS).map(tuple),
    vram_fraction=st.none() | st.floats(0, 1),
    ram_fraction=st.none() | st.floats(0, 1),
    estimate=st.none() | ESTIMATE,
    estimate_problem=TEXT,
    locks_memory=st.booleans(),
    assume_free=st.booleans(),
    user=TEXT,
    files=st.lists(TEXT).map(tuple),
    places=st.lists(TEXT).map(tuple),
    programs=st.lists(TEXT).map(tuple),
    handling=HANDLING,
)


@given(ENTRY)
def test_every_profile_comes_back_as_it_was(applied: Applied) -> None:
    """Encoding and decoding are inverse."""
    assert decode_manifest(encode_manifest({"a": applied}, "1")) == {"a": applied}


def test_equal_catalogues_are_equal_texts() -> None:
    """An apply that changes nothing writes nothing."""
    profiles = [s.applied for s in one_of_each()]
    forward = encode_manifest({a.name: a for a in profiles}, "1")
    assert forward == encode_manifest({a.name: a for a in reversed(profiles)}, "1")


SINCE_NEEDS = (
    "fingerprint",
    "gpus",
    "gpu_split",
    "vram_fraction",
    "ram_fraction",
    "estimate",
    "estimate_problem",
    "locks_memory",
    "assume_free",
)


@pytest.mark.parametrize(
    ("devices", "gpus"),
    [(("gpu-all",), "all"), (("gpu-10", "gpu-2"), (2, 10)), (("cpu",), ()), ((), ())],
)
def test_a_manifest_of_an_older_release_is_read(devices: tuple[str, ...], gpus: object) -> None:
    """Keys that it does not have get their defaults, and the GPUs are those claimed."""
    document = json.loads(encode_manifest({"a": made("a", *devices)}, "1"))
    for key in SINCE_NEEDS:
        del document["profiles"]["a"][key]
    assert decode_manifest(json.dumps(document)) == {"a": made("a", *devices, gpus=gpus)}


def test_nothing_applied_yet_is_an_empty_catalogue(tmp_path: Path) -> None:
    """A missing manifest is no error: the daemon runs before the first apply."""
    assert read_manifest(tmp_path) == {}
    assert ManifestProfiles(tmp_path / "missing").load() == {}


def test_a_manifest_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    """And only then; one that is damaged is damaged each time."""
    profiles = ManifestProfiles(tmp_path)
    assert profiles.load() == {}
    (tmp_path / MANIFEST).write_text(encode_manifest({"a": made("a", "cpu")}, "1"))
    assert set(profiles.load()) == {"a"}
    assert profiles.load() is profiles.load()
    (tmp_path / MANIFEST).write_text("{")
    for _ in range(2):
        with pytest.raises(StoreError):
            profiles.load()


GOOD = json.loads(encode_manifest({"a": made("a", "cpu")}, "1"))


def changed(**changes: object) -> str:
    """A manifest whose only profile has other values."""
    return json.dumps(GOOD | {"profiles": {"a": GOOD["profiles"]["a"] | changes}})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"format": 1, "version": "1", "profiles": []}',
        b'{"format": "1", "version": "1", "profiles": {}}',
        b"[" * 100_000,
        changed(name="b"),
        changed(name="../a"),
        changed(served="a"),
        changed(served=[1]),
        changed(endpoint=None),
        changed(endpoint={"port": "x", "socket": None}),
        changed(claim=None),
        changed(endpoint={}),
        changed(endpoint={"port": 1, "socket": "/s"}),
        changed(need={"vram_bytes": 1.5}),
        changed(need={"vram_bytes": True}),
        changed(gpus="some"),
        changed(gpu_split=["1"]),
        changed(locks_memory=1),
        changed(estimate={"vram_bytes": 1}),
        changed(handling={"set_parameters": []}),
        changed(claim=["gpu-first"], gpus=None),
        changed(deadlines={"stop_s": 10**400}),
        changed(deadlines={"stop_s": "soon"}),
        changed(warm_up="dance"),
        changed(first_mark=1),
        changed(binary=7),
        changed(model_path=["x"]),
    ],
)
def test_a_damaged_manifest_says_what_to_do(content: bytes | str, tmp_path: Path) -> None:
    """A damaged manifest gives an error of ours that names the remedy, whatever the damage."""
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / MANIFEST).write_bytes(raw)
    with pytest.raises(StoreError, match=r"is damaged.*sudo appliance apply"):
        read_manifest(tmp_path)


def test_a_manifest_of_a_newer_release_is_refused() -> None:
    """Reading it as an older one would act on half the truth."""
    with pytest.raises(StoreError, match=r"appliance 9\.9, which is newer"):
        decode_manifest(json.dumps({"format": 2, "version": "9.9", "profiles": 7}))


def test_an_unreadable_manifest_is_an_error(tmp_path: Path) -> None:
    """A directory in its place is not the same as nothing applied."""
    (tmp_path / MANIFEST).mkdir()
    with pytest.raises(StoreError, match="cannot read"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("damage", ["damaged", "empty", "missing", "a directory", "newer"])
def test_the_last_good_manifest_is_used_and_said_so(tmp_path: Path, damage: str) -> None:
    """A damaged manifest's copy is used until the manifest is whole again."""
    manifest, good = tmp_path / MANIFEST, encode_manifest({"a": made("a", "cpu")}, "1")
    copy_of(manifest).write_text(good)
    match damage:
        case "damaged":
            manifest.write_text(good[:-30])
        case "empty":
            manifest.write_text("")
        case "a directory":
            manifest.mkdir()
        case "newer":
            manifest.write_text('{"format": 9, "version": "9"}')
        case _:
            pass
    profiles = ManifestProfiles(tmp_path)
    assert set(profiles.load()) == {"a"} == set(read_manifest(tmp_path))
    assert str(profiles.damage).startswith(("cannot read", str(manifest)))
    assert str(profiles.damage).endswith("; its copy is used")
    if manifest.is_dir():
        manifest.rmdir()
    manifest.write_text(encode_manifest({"b": made("b", "cpu")}, "1"))
    assert set(profiles.load()) == {"b"}
    assert profiles.damage is None


def test_where_the_copy_is_damaged_too_the_manifest_is_named(tmp_path: Path) -> None:
    """Root mends the file that is read, not the one beside it."""
    manifest = tmp_path / MANIFEST
    manifest.write_text("{")
    copy_of(manifest).write_text("{")
    with pytest.raises(StoreError, match=f"{re.escape(str(manifest))} is damaged"):
        read_manifest(tmp_path)
    manifest.unlink()
    with pytest.raises(StoreError, match="is missing: sudo appliance apply"):
        read_manifest(tmp_path)
    assert ManifestProfiles(tmp_path).damage is None


def test_an_edit_is_seen_at_once(tmp_path: Path) -> None:
    """A profile counts as edited while its file is not the one that was applied."""
    path = tmp_path / "a.toml"
    path.write_text("applied")
    digest = hashlib.sha256(b"applied").hexdigest()
    catalogue = {"a": made("a", source_path=str(path), source_sha256=digest)}
    watch = EditWatch()
    assert watch.edited(catalogue) == frozenset()
    path.write_text("edited")
    assert watch.edited(catalogue) == {"a"}
    again = hashlib.sha256(b"edited").hexdigest()
    assert watch.edited({"a": replace(catalogue["a"], source_sha256=again)}) == frozenset()
    path.unlink()
    assert watch.edited(catalogue) == frozenset()
    path.mkdir()
    assert watch.edited(catalogue) == {"a"}


TEXTS = st.lists(st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)).map(tuple)
CONFIGURATION = st.builds(
    Configuration,
    port=st.integers(1, 65535),
    addresses=TEXTS,
    interfaces=TEXTS,
    tls=st.booleans(),
    limits=st.builds(Limits, body_bytes=st.integers(0, 1 << 40), idle_s=SECONDS),
    drain_s=SECONDS,
    allow_paths=TEXTS,
    names=TEXTS,
    origins=TEXTS,
)


@given(CONFIGURATION)
def test_it_comes_back_as_it_was(configuration: Configuration) -> None:
    """Encoding and decoding are inverse."""
    assert decode_configuration(encode_configuration(configuration, "1")) == configuration


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    """A gateway that was installed and never configured listens on loopback."""
    assert recover_configuration(tmp_path).content == Configuration()
    assert Configuration().beyond_loopback() == ()


@pytest.mark.parametrize("text", ['{"format":1}', '{"format":1,"limits":{},"later":true}'])
def test_what_is_missing_has_its_default_and_what_is_new_is_ignored(text: str) -> None:
    """A file of another release of the same format can be read."""
    assert decode_configuration(text) == Configuration()


def test_whole_seconds_are_seconds() -> None:
    """JSON makes no difference between 10 and 10.0."""
    assert decode_configuration('{"format":1,"drain_s":10,"limits":{"wait_s":3}}') == Configuration(
        drain_s=10.0, limits=Limits(wait_s=3.0)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format":2,"version":"9"}',
        '{"format":1,"port":"80"}',
        '{"format":1,"port":true}',
        '{"format":1,"addresses":"127.0.0.1"}',
        '{"format":1,"limits":{"queue":1.5}}',
        "[" * 9999,
    ],
)
def test_damage_is_said_with_what_to_do(tmp_path: Path, text: str) -> None:
    """A damaged file is not guessed at: apply writes the file again."""
    (tmp_path / GATEWAY_FILE).write_text(text)
    with pytest.raises(StoreError, match="sudo appliance apply"):
        recover_configuration(tmp_path)


def test_what_other_machines_reach() -> None:
    """Interfaces, and every address but those of this machine."""
    configuration = Configuration(
        addresses=("127.0.0.1", "::1", "127.0.0.2", "10.10.10.1", "fd00::1"),
        interfaces=("tailscale0",),
    )
    assert configuration.beyond_loopback() == ("10.10.10.1", "fd00::1", "tailscale0")


def test_the_last_good_configuration_is_used_and_said_so(tmp_path: Path) -> None:
    """A gateway that asks for keys, or listens elsewhere, does so also from the copy."""
    configured = Configuration(port=9999, keys_always=True)
    path = tmp_path / GATEWAY_FILE
    path.write_text(encode_configuration(configured, "1"))
    copy_of(path).write_text(encode_configuration(configured, "1"))
    watch = DamageWatch(tmp_path)
    assert watch.damage() is None
    path.write_text("{")
    assert recover_configuration(tmp_path).content == configured
    assert "sudo appliance apply; its copy is used" in str(watch.damage())
    copy_of(path).write_text("{")
    assert str(watch.damage()).endswith("sudo appliance apply")

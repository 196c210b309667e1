"""Files that the gateway reads: profiles, secrets, exposed paths."""

import os
from pathlib import Path

import pytest

from appliance.gateway.configuration import AllowedPaths, GatewayFiles
from appliance.model.profile import Handling
from appliance.system.applied.manifest import MANIFEST, encode_manifest
from tests.fakes.certificates import self_signed
from tests.fakes.unit_specs import made


def files(root: Path) -> GatewayFiles:
    """Directories below `root`."""
    return GatewayFiles(applied=root, runtime=root, credentials=root)


def test_systemd_says_where_things_are() -> None:
    """Directories come from systemd's variables; else the defaults hold, without secrets."""
    usual = GatewayFiles.of({})
    assert usual.applied == Path("/var/lib/appliance-applied")
    assert usual.runtime == Path("/run/appliance-gateway")
    assert usual.credentials is None
    assert usual.read_tls() is None
    found = GatewayFiles.of({"RUNTIME_DIRECTORY": "/run/x", "CREDENTIALS_DIRECTORY": "/run/y"})
    assert (found.runtime, found.credentials) == (Path("/run/x"), Path("/run/y"))


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (None, None),
        (b"s3cret\n", "s3cret"),
        (b"-", None),
        (b"", None),
        (b"two\nlines", None),
        (b"a\x00b", None),
    ],
    ids=range(6),
)
def test_an_engines_key_is_a_credential(
    tmp_path: Path, content: bytes | None, key: str | None
) -> None:
    """A key is one line; text that would break a header, or stands for a missing file, is none."""
    (tmp_path / MANIFEST).write_text(encode_manifest({"m": made("m", "gpu-0")}, "1"))
    if content is not None:
        (tmp_path / "engine-key.m").write_bytes(content)
    assert files(tmp_path).read_catalogue()["m"].engine_key == key
    assert (
        GatewayFiles(applied=tmp_path, runtime=tmp_path, credentials=None)
        .read_catalogue()["m"]
        .name
        == "m"
    )


def late(root: Path, key: Path | None) -> list[str]:
    """Return the profiles whose engine's key waits for a restart, of one with such a file."""
    handling = Handling(engine_key_file=None if key is None else str(key))
    (root / MANIFEST).write_text(encode_manifest({"m": made("m", "gpu-0", handling=handling)}, "1"))
    found = files(root)
    return found.late_engine_keys(found.read_catalogue())


def test_an_engines_key_that_waits_for_a_restart_is_known(tmp_path: Path) -> None:
    """A file that the service did not get when it started, another one, and one that was written since."""
    key, given = tmp_path / "key", tmp_path / "engine-key.m"
    key.write_text("old")
    os.utime(key, (1000, 1000))
    assert late(tmp_path, None) == []
    assert late(tmp_path, key) == ["m"]
    given.write_text("old")
    assert late(tmp_path, key) == [], "handed over by a unit that does not name the file"
    (tmp_path / "engine-key-file.m").write_text(str(key))
    assert late(tmp_path, key) == []
    assert late(tmp_path, tmp_path / "other") == ["m"]
    os.utime(key, (4e9, 4e9))
    assert late(tmp_path, key) == ["m"]
    key.unlink()
    assert late(tmp_path, key) == [], "not known: a directory may be closed to the gateway"
    alone = GatewayFiles(applied=tmp_path, runtime=tmp_path, credentials=None)
    assert alone.late_engine_keys(alone.read_catalogue()) == ["m"]


def test_a_certificate_is_a_credential(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A certificate is two files of PEM; anything else is logged, and there is no TLS."""
    self_signed(tmp_path)
    assert files(tmp_path).read_tls() is not None
    (tmp_path / "tls.crt").write_text("-")
    assert files(tmp_path).read_tls() is None
    assert "the certificate cannot be used" in caplog.text


def test_a_renewed_certificate_is_noticed(tmp_path: Path) -> None:
    """The file has another certificate than the one that was handed over, also behind a link that was turned."""
    for name in ("own", "first", "second"):
        (tmp_path / name).mkdir()
    first, second = self_signed(tmp_path / "first"), self_signed(tmp_path / "second")
    source = tmp_path / "live.crt"
    source.symlink_to(first.certificate)
    (tmp_path / "own" / "tls.crt").write_bytes(first.certificate.read_bytes())
    given = GatewayFiles(applied=tmp_path, runtime=tmp_path, credentials=tmp_path / "own")
    watch = given.certificate_watch(str(source))
    assert not watch.is_renewed()
    (tmp_path / "new.crt").symlink_to(second.certificate)
    (tmp_path / "new.crt").rename(source)
    assert watch.is_renewed()
    (tmp_path / "old.crt").symlink_to(first.certificate)
    (tmp_path / "old.crt").rename(source)
    assert not watch.is_renewed()


def test_a_certificate_that_cannot_be_read_is_not_said_to_be_renewed(tmp_path: Path) -> None:
    """A file that is gone, a huge one, and a gateway without TLS or without credentials."""
    self_signed(tmp_path)
    source = tmp_path / "source"
    watch = files(tmp_path).certificate_watch(str(source))
    assert not watch.is_renewed()
    source.write_bytes(b"x" * ((1 << 20) + 1))
    assert not watch.is_renewed()
    source.write_bytes(b"x")
    assert watch.is_renewed()
    source.unlink()
    assert not watch.is_renewed()
    assert not files(tmp_path).certificate_watch("").is_renewed()
    assert not GatewayFiles.of({}).certificate_watch(str(source)).is_renewed()


@pytest.mark.parametrize(
    ("path", "exposed"),
    [
        ("/metrics", True),
        ("/metrics/", False),
        ("/slots/0", True),
        ("/slots", False),
        ("/slots/../sleep", False),
        ("/slots/%2e%2e/sleep", False),
        ("/slots//0", False),
        ("/slots/\\..", False),
        ("/sleep", False),
        (7, False),
    ],
)
def test_paths_are_exposed_by_name(path: object, *, exposed: bool) -> None:
    """A path is exposed as a whole or by its beginning, unless it could lead elsewhere."""
    assert (path in AllowedPaths(["/metrics", "/slots/*"])) is exposed
    assert path not in AllowedPaths([])

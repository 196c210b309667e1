"""Access findings: files that an engine could not open, as its user and in its unit's view."""

import asyncio
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.model.profile import Adapter, Applied
from appliance.switch.engine_findings import access_findings, file_findings
from appliance.switch.preflight_facts import (
    AccessFacts,
    Level,
    Node,
    Presence,
    ProfileFacts,
    Use,
    Walk,
)
from appliance.switch.units.sandbox import Sight, opened, sight_of, view_in, view_of
from appliance.system.files.access import (
    ModelPresences,
    draft_presence,
    follow,
    missing_adapters,
    read_access,
)
from appliance.system.model_files.reading import ModelChecks
from tests.fakes.profiles import applied
from tests.fakes.unit_specs import made

PROFILE = made("m", "cpu", engine="llama-server", model="/srv/m.gguf", model_path="/srv/m.gguf")
UID, GID = 990, 980


def node(path: str, mode: int, *, uid: int = 0, gid: int = 0, acl: bool = False) -> Node:
    kind = 0 if stat.S_IFMT(mode) else stat.S_IFDIR if path.count(".") == 0 else stat.S_IFREG
    return Node(path=path, mode=kind | mode, uid=uid, gid=gid, owner="ana", has_acl=acl)


def told(
    *nodes: Node,
    applied: Applied = PROFILE,
    use: Use = Use.READ,
    arrived: bool = True,
    uid: int | None = UID,
) -> list[tuple[Level, str]]:
    walk = Walk(nodes=nodes, use=use, arrived=arrived)
    facts = AccessFacts(user="engine", uid=uid, gids=frozenset({GID}), walks=(walk,))
    return [(f.level, f.text) for f in access_findings(applied, facts)]


FILE = "/srv/m.gguf"
SRV = node("/srv", 0o755)
SHARE = f"sudo chgrp appliance-backend {FILE} && sudo chmod g+r {FILE}"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (node(FILE, 0o644), None),
        (node(FILE, 0o640, gid=GID), None),
        (node(FILE, 0o400, uid=UID), None),
        (node(FILE, 0o600), f"engine may not read {FILE} (0600, owner ana): {SHARE}"),
        (
            node(FILE, 0o604, gid=GID),
            f"engine may not read {FILE} (0604, owner ana): sudo chmod g+r {FILE}",
        ),
        (
            node(FILE, 0o044, uid=UID),
            f"engine may not read {FILE} (0044, owner ana): sudo chmod u+r {FILE}",
        ),
    ],
)
def test_a_file_that_the_engine_may_not_read_is_refused(found: Node, text: str | None) -> None:
    """The class of the kernel decides, owner before group before others, and the text has the way out."""
    assert told(SRV, found) == ([] if text is None else [(Level.REFUSE, text)])


def test_an_owner_that_is_made_at_each_start_owns_nothing() -> None:
    """A dynamic user reads by group or as anybody."""
    assert told(SRV, node(FILE, 0o400, uid=UID), uid=None)
    assert not told(SRV, node(FILE, 0o440, uid=UID, gid=GID), uid=None)


@pytest.mark.parametrize(
    ("nodes", "use", "words"),
    [
        ([node("/srv", 0o700), node(FILE, 0o644)], Use.READ, "may not enter /srv (0700"),
        ([SRV, node("/srv/m", 0o711)], Use.READ, "may not read /srv/m (0711"),
        ([SRV, node("/srv/v.run", 0o644)], Use.RUN, "may not run /srv/v.run (0644"),
    ],
)
def test_directories_and_programs_need_their_own_bits(
    nodes: list[Node], use: Use, words: str
) -> None:
    """A directory on the way is entered, the model's own is listed, a program is run."""
    ((level, text),) = told(*nodes, use=use)
    assert (level, words in text) == (Level.REFUSE, True), text


def test_what_is_not_certain_is_no_refusal() -> None:
    """An access list may grant what the mode does not; behind what cannot be seen nothing is told."""
    ((level, text),) = told(SRV, node(FILE, 0o600, acl=True))
    assert (level, text.endswith("(unless its access list says so)")) == (Level.WARN, True)
    assert not told(SRV, arrived=False)
    assert not told(arrived=False)
    assert not access_findings(PROFILE, None)


def test_many_files_are_told_as_some() -> None:
    """A model of many parts makes no long story."""
    walks = tuple(
        Walk(nodes=(SRV, node(f"/srv/{i}.gguf", 0o600)), use=Use.READ, arrived=True)
        for i in range(9)
    )
    facts = AccessFacts(user="engine", uid=UID, gids=frozenset(), walks=walks)
    found = [*access_findings(PROFILE, facts)]
    assert [f.level for f in found] == [Level.REFUSE] * 3 + [Level.WARN]
    assert found[-1].text == "6 further files cannot be opened either"


HOME = replace(PROFILE, model_path="/home/ana/m.gguf", binary="/home/ana/venv/bin/vllm")


@pytest.mark.parametrize(
    ("path", "sight"),
    [
        ("/srv/x", Sight.SHOWN),
        ("/home", Sight.PASSED),
        ("/home/ana", Sight.PASSED),
        ("/home/ana/m.gguf", Sight.SHOWN),
        ("/home/ana/venv/lib/x.py", Sight.SHOWN),
        ("/home/ana/.pyenv/bin/python", Sight.HIDDEN),
        ("/root/.local/bin/python", Sight.HIDDEN),
        ("/var/tmp", Sight.SHOWN),  # noqa: S108
        ("/tmp/m.gguf", Sight.HIDDEN),  # noqa: S108
        ("/var/tmp/m.gguf", Sight.HIDDEN),  # noqa: S108
    ],
)
def test_a_unit_sees_of_homes_what_it_is_shown(path: str, sight: Sight) -> None:
    """Other people's homes are empty, and temporary directories are the unit's own."""
    assert sight_of(path, view_of(HOME)) is sight


def test_what_a_unit_does_not_see_is_refused() -> None:
    """A private home on the way is no obstacle, an interpreter in another one is."""
    home = node("/home/ana", 0o700)
    link = node("/home/ana/venv/bin/python", stat.S_IFLNK | 0o777)
    base = node("/home/ana/.pyenv/bin/python3.12", 0o755)
    ((level, text),) = told(home, link, base, applied=HOME, use=Use.RUN)
    assert level is Level.REFUSE
    assert text.startswith("the engine cannot see /home/ana/.pyenv/bin/python3.12")
    shown = replace(HOME, programs=(base.path,))
    assert not told(home, link, base, applied=shown, use=Use.RUN)
    ((level, text),) = told(node("/var/tmp/m.gguf", 0o644))  # noqa: S108
    assert (level, text) == (
        Level.REFUSE,
        "the engine cannot see /var/tmp/m.gguf: each unit has a /var/tmp of its own: move the file",
    )


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        (["ProtectHome=tmpfs", "PrivateTmp=yes"], []),
        (["ProtectHome=yes", "ProtectHome=read-only", "PrivateTmp=yes"], ["/home/ana/x"]),
        (["ProtectHome=yes", "PrivateTmp=no"], ["/tmp/x"]),  # noqa: S108
        ([], ["/home/ana/x", "/tmp/x"]),  # noqa: S108
        (
            ["ProtectHome=tmpfs", "PrivateTmp=yes", 'BindReadOnlyPaths=-/home/ana "/srv/a:/tmp/x"'],
            ["/home/ana/x", "/tmp/x"],  # noqa: S108
        ),
        (
            ["ProtectHome=tmpfs", "PrivateTmp=yes", "Nice=5", "BindPaths=/home/ana/x"],
            ["/home/ana/x"],
        ),
    ],
)
def test_the_installed_unit_says_what_is_shown(lines: list[str], seen: list[str]) -> None:
    """Also what somebody has written by hand, in the unit or beside it."""
    view = view_in("\n".join(["[Unit]", "BindPaths=/root", "[Service]", *lines]))
    paths = ["/home/ana/x", "/tmp/x", "/root/x"]  # noqa: S108
    hidden = {path for path in paths if sight_of(path, view) is Sight.HIDDEN}
    assert hidden - {"/root/x"} == {*paths[:2]} - {*seen}


def test_a_unit_that_shows_a_place_by_hand_is_believed(tmp_path: Path) -> None:
    """A drop-in counts as the unit does, and without a unit what apply would write."""
    profile = made("m", "cpu", binary="/bin/sh", model="", model_path="/home/ana/m.gguf")
    way = Walk(nodes=(node("/home/ana/m.gguf", 0o644),), use=Use.READ, arrived=True)
    unit = tmp_path / "appliance-backend-m.service"
    found = []
    for text in ("", "[Service]\nProtectHome=yes\n", "[Service]\nBindPaths=/home/ana\n"):
        if text.endswith("yes\n"):
            unit.write_text(text)
        elif text:
            (tmp_path / f"{unit.name}.d").mkdir()
            (tmp_path / f"{unit.name}.d" / "x.conf").write_text(text)
        facts = read_access(replace(profile, user="nobody"), tmp_path)
        assert facts is not None
        found.append(len([*access_findings(profile, replace(facts, walks=(way,)))]))
    assert found == [0, 1, 0]


# --- what the file system says -----------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with interpreters as uv and pyenv keep them, and a virtual environment of one."""
    root = tmp_path / "home"
    base = root / "uv/cpython-3.12.1"
    (base / "bin").mkdir(parents=True)
    (base / "bin/python3.12").write_bytes(b"\x7fELF")
    (root / "uv/cpython-3.12").symlink_to("cpython-3.12.1")
    (root / "pyenv/bin").mkdir(parents=True)
    (root / "pyenv/bin/python3").write_bytes(b"\x7fELF")
    venv = root / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(root / "uv/cpython-3.12/bin/python3.12")
    (venv / "pyvenv.cfg").write_text(f"home = {root}/pyenv/bin\nversion = 3.12\n")
    (venv / "bin/vllm").write_text(f"#!{venv}/bin/python\nimport vllm\n")
    return root


def test_an_interpreter_is_found_wherever_it_lives(home: Path) -> None:
    """The script's first line, each link of the interpreter, and the base of its environment."""
    profile = made("m", "cpu", binary=f"{home}/venv/bin/vllm", model_path=None, model="")
    assert follow(profile, [], []).programs == (
        f"{home}/venv/bin/python",
        f"{home}/uv/cpython-3.12/bin/python3.12",
        f"{home}/uv/cpython-3.12.1/bin/python3.12",
        f"{home}/pyenv/bin/python3",
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"#!/bin/sh\n'''exec' \"/opt/a b/python\" \"$0\" \"$@\"\n' '''\n", ("/opt/a b/python",)),
        (b"#! /opt/x/python -I\n", ("/opt/x/python",)),
        (b"#!python\n", ()),
        (b"#!\n", ()),
        (b"#!'\n", ()),
        (b"", ()),
        (b"\x7fELF#!/no", ()),
    ],
)
def test_first_lines_of_every_kind(tmp_path: Path, text: bytes, found: tuple[str, ...]) -> None:
    """Also pip's way around a path that is too long; nonsense is no interpreter."""
    (tmp_path / "vllm").write_bytes(text)
    profile = made("m", "cpu", binary=f"{tmp_path}/vllm", model_path=None, model="")
    assert follow(profile, [], []).programs == found


def test_programs_that_make_no_sense_end(tmp_path: Path) -> None:
    """Links in a circle, a FIFO, a directory and a path with a zero byte are followed nowhere."""
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "fifo")
    for name in ("circle", "fifo", ".", "no\0"):
        profile = made("m", "cpu", binary=f"{tmp_path}/{name}", model_path=None, model="")
        assert follow(profile, [], []).programs in {(), (f"{tmp_path}/circle",), (str(tmp_path),)}


def test_files_of_a_launch_are_followed(tmp_path: Path) -> None:
    """Every part of a model, and each file among the arguments, but none that is written."""
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    parts = [tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    for part in parts:
        (blobs / part.name).write_bytes(b"GGUF")
        part.symlink_to(blobs / part.name)
    (tmp_path / "draft.gguf").write_bytes(b"GGUF")
    (tmp_path / "log").write_bytes(b"")
    profile = replace(PROFILE, model=str(parts[0]), model_path=str(parts[0]))
    (tmp_path / "lora.gguf").write_bytes(b"GGUF")
    words = [
        "-md",
        f"{tmp_path}/draft.gguf",
        f"--lora={tmp_path}/none,{tmp_path}/lora.gguf",
        "--log-file",
        f"{tmp_path}/log",
    ]
    reached = follow(profile, words, [])
    assert reached.files == (f"{tmp_path}/draft.gguf", f"{tmp_path}/lora.gguf")
    assert set(reached.places) == {
        f"{blobs}/{parts[0].name}",
        str(parts[1]),
        f"{blobs}/{parts[1].name}",
    }
    assert follow(replace(profile, engine="command"), words, []).files == ()


def test_a_draft_model_is_followed_and_checked(tmp_path: Path) -> None:
    """A draft model may be a directory, which no argument of its own has to name."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "draft").symlink_to(real)
    profile = replace(PROFILE, draft_path=f"{tmp_path}/draft", user="nobody")
    assert follow(profile, [], []).places == (str(real),)
    facts = read_access(profile, tmp_path)
    assert facts is not None
    assert str(real) in {walk.nodes[-1].path for walk in facts.walks if walk.use is Use.READ}
    assert draft_presence(profile) is Presence.PRESENT
    assert draft_presence(replace(profile, draft_path=f"{tmp_path}/none")) is Presence.MISSING
    assert draft_presence(PROFILE) is Presence.PRESENT


def test_adapters_are_followed_and_checked(tmp_path: Path) -> None:
    """An adapter is a directory beside the model; the engine reads its files wherever links lead."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "adapter_model.safetensors").write_bytes(b"")
    (tmp_path / "sql").symlink_to(real)
    adapters = tuple(
        Adapter(name=name, engine_name=name, path=f"{tmp_path}/{name}") for name in ("sql", "none")
    )
    profile = replace(PROFILE, adapters=adapters, user="nobody")
    assert str(real) in follow(profile, [], []).places
    assert {f"{tmp_path}/sql", f"{tmp_path}/none"} <= {*opened(profile)}
    facts = read_access(profile, tmp_path)
    assert facts is not None
    read = {walk.nodes[-1].path for walk in facts.walks if walk.use is Use.READ}
    assert str(real / "adapter_model.safetensors") in read
    assert missing_adapters(profile) == ("none",)
    (finding,) = file_findings(profile, ProfileFacts(missing_adapters=("none",)))
    assert finding.text == f"adapter missing: none: {tmp_path}/none"


@pytest.mark.parametrize(
    ("most", "rank", "is_refused"),
    [(16, 17, True), (16, 16, False), (16, None, False), (None, 64, False)],
)
def test_an_adapter_of_a_higher_rank_than_the_engine_takes_is_refused(
    *, most: int | None, rank: int | None, is_refused: bool
) -> None:
    """A rank declared too low, or a file changed since: the engine would fail at its start."""
    adapter = Adapter(name="sql", engine_name="sql", path="/l", most_rank=most)
    profile = replace(PROFILE, adapters=(adapter,))
    found = [f.text for f in file_findings(profile, ProfileFacts(adapter_ranks=(rank,)))]
    text = (
        "adapter sql has rank 17, and its engine is started for ranks up to 16: correct its rank in "
        f"{PROFILE.source_path.rpartition('/')[2]}, or remove it there, then: sudo appliance apply"
    )
    assert found == ([text] if is_refused else [])


def test_the_ways_are_as_the_file_system_has_them(tmp_path: Path) -> None:
    """A private part of a model and a private tokenizer are on the list, for the user that runs it."""
    model = tmp_path / "m"
    model.mkdir(mode=0o755)
    for name in ("config.json", "tokenizer.json", "model-00001-of-00002.safetensors"):
        (model / name).write_bytes(b"{}")
        (model / name).chmod(0o600)
    (model / "notes.md").write_bytes(b"")
    profile = made(
        "m", "cpu", binary="/bin/sh", model=str(model), model_path=str(model), user="nobody"
    )
    facts = read_access(profile, tmp_path)
    assert facts is not None
    assert {w.nodes[-1].path.rpartition("/")[2] for w in facts.walks if w.use is Use.READ} == {
        "m",
        "config.json",
        "tokenizer.json",
        "model-00001-of-00002.safetensors",
    }
    assert all(walk.arrived for walk in facts.walks)
    assert facts.uid is not None
    assert read_access(replace(profile, user="no-such-user"), tmp_path) is None
    own = read_access(replace(profile, user=""), tmp_path)
    assert own is not None
    assert own.uid is None
    gone = read_access(replace(profile, model_path=f"{model}/gone"), tmp_path)
    assert gone is not None
    assert [w.arrived for w in gone.walks if w.use is Use.READ] == [False]


def test_nobody_has_shown_what_is_anothers(home: Path) -> None:
    """A user's link or script leads only to files of that user; root's lead anywhere."""
    if os.geteuid() != 0:
        pytest.skip("needs root to give files away; whose links are followed stays unproved")
    profile = made("m", "cpu", binary=f"{home}/venv/bin/vllm", model_path=None, model="")
    os.chown(home / "venv/bin/vllm", 1000, 1000)
    assert follow(profile, [], []).programs == ()
    facts = read_access(replace(profile, user="nobody"), home)
    assert facts is not None
    checked = {w.nodes[-1].path for w in facts.walks}
    assert f"{home}/uv/cpython-3.12.1/bin/python3.12" in checked, "what is not shown is checked"
    os.chown(home / "venv/bin/vllm", 0, 0)
    os.chown(home / "venv/bin/python", 1000, 1000, follow_symlinks=False)
    named_by_root = [f"{home}/venv/bin/python", f"{home}/pyenv/bin/python3"]
    assert [*follow(profile, [], []).programs] == named_by_root
    for name in ("uv/cpython-3.12.1/bin/python3.12", "uv/cpython-3.12"):
        os.chown(home / name, 1000, 1000, follow_symlinks=False)
    assert len(follow(profile, [], []).programs) == 4


class SlowModels:
    """Models whose files answer when they are allowed to."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.looks: list[str] = []

    def look(self, profile: Applied, _models: ModelChecks) -> tuple[Presence, str]:
        self.looks.append(profile.model)
        if profile.model != "quick":
            self.answer.wait()
        return Presence.PRESENT, ""


@pytest.fixture
def slow() -> Iterator[SlowModels]:
    models = SlowModels()
    yield models
    models.answer.set()


def model(name: str, profile: str = "one") -> Applied:
    return replace(applied(profile, "gpu-all"), model=name, model_path=f"/models/{name}")


async def test_a_model_is_looked_at_once_at_a_time(slow: SlowModels) -> None:
    """Profiles of one model, asked together, share one look; later ones have another."""
    presences = ModelPresences(slow.look)
    asked = [asyncio.create_task(presences.of(model("m", name))) for name in ("one", "two")]
    while not slow.looks:
        await asyncio.sleep(0)
    slow.answer.set()
    assert await asyncio.gather(*asked) == [(Presence.PRESENT, "")] * 2
    assert slow.looks == ["m"]
    await presences.of(model("m"))
    assert slow.looks == ["m", "m"]


async def test_a_slow_model_is_unknown_and_keeps_nobody(slow: SlowModels) -> None:
    """A model that takes too long is not checked, while another is; who gives up leaves the look to others."""
    presences = ModelPresences(slow.look, deadline_s=0.05)
    patient = ModelPresences(slow.look)
    assert await presences.of(model("m")) == (
        Presence.UNKNOWN,
        "its files were not read within 0 s",
    )
    assert await presences.of(model("quick")) == (Presence.PRESENT, "")
    leaving, staying = (asyncio.create_task(patient.of(model("n"))) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    slow.answer.set()
    assert await staying == (Presence.PRESENT, "")

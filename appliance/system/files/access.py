"""Access to the files that an engine opens before it serves: their paths, and who may open them.

`appliance apply` calls `follow` as root, so that the unit can bind the targets of links; apply and
every preflight call `read_access`. Nothing here raises; a directory that this process may not read
ends a walk.
"""

import asyncio
import contextlib
import importlib.util
import os
import pwd
import shlex
import stat
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from grp import getgrnam
from pathlib import Path
from typing import Final

from appliance.engines import ENGINES
from appliance.model.errors import StoreError
from appliance.model.model_headers import ModelFileFault
from appliance.model.names import unit_of
from appliance.model.profile import Applied
from appliance.profiles.compilation import Reached
from appliance.profiles.estimates.estimating import reference_of
from appliance.switch.preflight_facts import AccessFacts, Node, Presence, Use, Walk
from appliance.switch.units.sandbox import Identity, identity_of
from appliance.system.files.durable import read_regular
from appliance.system.kernel.processes import user_name
from appliance.system.model_files.locate import HeaderError, entries_of, gguf_files, main_file
from appliance.system.model_files.reading import ModelChecks

_ROOT: Final = 0
_MOST_LINKS: Final = 40
"""Most links on one path, as many as the kernel follows (path_resolution(7))."""
_MOST_FILES: Final = 512
_MOST_PROGRAMS: Final = 16
_HEAD_BYTES: Final = 4096
_READ_SUFFIXES: Final = frozenset(
    {".bin", ".gguf", ".jinja", ".json", ".model", ".py", ".safetensors", ".tiktoken", ".txt"}
)
_WRITTEN: Final = frozenset({"--log-file"})
"""Options whose file the engine writes."""
_LONG_SHEBANG: Final = b"'''exec' "
"""Form that pip gives an interpreter whose path is too long for a first line, or has blanks."""


def follow(applied: Applied, words: Sequence[str], programs: Sequence[str]) -> Reached:
    """Return the targets of the paths of a launch: `words`, the model's files, `programs`."""
    named = [*_named_files(words)] if ENGINES[applied.engine].arguments_name_files else []
    opened = (*_model_files(applied), *_companions(applied), *named)
    known = {*named, *_companions(applied)}
    run = [
        place
        for program in (applied.binary, *programs)
        for place in _run_by(program, of_one_owner=True)
    ]
    return Reached(
        files=tuple(dict.fromkeys(p for p in named if p != applied.model_path)),
        places=_apart(
            applied.model_path,
            (p for path in opened for p in _places(path) if p not in known),
        ),
        programs=tuple(dict.fromkeys(p for p in run if p != applied.binary)),
    )


def _apart(directory: str | None, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the `paths` that are neither `directory` nor in it."""
    apart = (p for p in paths if directory is None or not f"{p}/".startswith(f"{directory}/"))
    return tuple(dict.fromkeys(apart))


def read_access(applied: Applied, unit_dir: Path) -> AccessFacts | None:
    """Return the engine's identity and the walks to its files; None: its user does not exist."""
    identity = identity_of(applied)
    try:
        uid = None if identity.dynamic else pwd.getpwnam(identity.user).pw_uid
    except KeyError:
        return None
    look = cache(_node)  # Most paths begin with the same directories.
    run = dict.fromkeys(_run_by(applied.binary, of_one_owner=False))
    read = dict.fromkeys([*_model_files(applied), *_companions(applied), *applied.files])
    ways = [*((p, Use.RUN) for p in run), *((p, Use.READ) for p in read)]
    return AccessFacts(
        user=identity.user,
        uid=uid,
        gids=_gids(identity),
        walks=tuple(_walk(path, use, look) for path, use in ways),
        unit=_unit_text(unit_dir / unit_of(applied.name)),
    )


def _unit_text(unit: Path) -> str | None:
    """Return the text of a unit with its drop-ins; None: not installed."""
    try:
        text = read_regular(unit)
        more = [read_regular(p) for p in sorted(unit.parent.glob(f"{unit.name}.d/*.conf"))]
    except (OSError, StoreError):
        return None
    return None if text is None else "\n".join([text, *filter(None, more)])


def _gids(identity: Identity) -> frozenset[int]:
    """Return the groups that systemd gives to the unit; a group that does not exist is left out."""
    found: set[int] = set()
    for name in (identity.group, *identity.further_groups):
        with contextlib.suppress(KeyError):
            found.add(getgrnam(name).gr_gid)
    if not identity.dynamic:
        with contextlib.suppress(KeyError, OSError):
            primary = pwd.getpwnam(identity.user).pw_gid
            found |= {*os.getgrouplist(identity.user, primary)} - {primary}
    return frozenset(found)


# --- choice of files ---------------------------------------------------------------------


def _model_files(applied: Applied) -> list[str]:
    """Return the model's files, as far as this process can list them."""
    path = applied.model_path
    reference = reference_of(applied.engine, applied.model, path)
    if path is None or reference is None:
        return [] if path is None else [path]
    try:
        first = main_file(reference.model, path, gguf=reference.gguf)
        if not first.is_dir():
            return [str(file) for file in gguf_files(first)]
        return _directory_files(first)
    except (OSError, HeaderError, ValueError):
        return [path]


def _directory_files(directory: Path) -> list[str]:
    """Return a directory and the files in it that an engine reads. Raises `OSError` or `HeaderError`."""
    inside = sorted(p for p in entries_of(directory) if p.suffix in _READ_SUFFIXES)
    return [str(file) for file in (directory, *inside[:_MOST_FILES])]


def _companions(applied: Applied) -> list[str]:
    """Return what is loaded with the model: a draft model's path, adapters with their files."""
    found = [*applied.companions]
    for adapter in applied.adapters:
        with contextlib.suppress(OSError, ValueError, HeaderError):
            found += _directory_files(Path(adapter.path))
    return found


def _named_files(words: Sequence[str]) -> Iterator[str]:
    """Return files among an engine's arguments: templates, adapters, a draft model, a projector."""
    for before, word in zip(("", *words), words, strict=False):
        option, equals, value = word.partition("=")
        named = value if equals and option.startswith("--") else word
        written = (option if equals else before) in _WRITTEN
        # Adapters are a list with commas; a file may have one in its name.
        for path in dict.fromkeys((named, *named.split(","))):
            if path.startswith("/") and not written and _is_file(path):
                yield path


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def _run_by(program: str, *, of_one_owner: bool) -> list[str]:
    """Return every file needed to run `program`, itself first: interpreters, and the targets of links.

    Args:
        program: Its path.
        of_one_owner: Leave out files that a user's script or link names and that are another user's.
    """
    found: dict[str, None] = {}
    todo: deque[tuple[str, int | None]] = deque([(program, _ROOT)])
    while todo and len(found) < _MOST_PROGRAMS:
        path, owner = todo.popleft()
        trusted = owner in {_ROOT, _uid(path)} or not of_one_owner
        if path in found or not path.startswith("/") or not trusted:
            continue
        places = _places(path, of_one_owner=of_one_owner)
        found.update(dict.fromkeys(places))
        for source, named in ((path, _interpreter(path)), *map(_base_interpreter, places)):
            todo.extend((p, _uid(source)) for p in named)
    return list(found)


def _uid(path: str) -> int | None:
    """Return the owner of the file that `path` leads to; None: there is none."""
    try:
        return Path(path).stat().st_uid
    except (OSError, ValueError):
        return None


def _interpreter(path: str) -> list[str]:
    """Return the program that a script names in its first line; none for other files."""
    lines = _head(path).splitlines()[:2]
    if not lines or not lines[0].startswith(b"#!"):
        return []
    if len(lines) > 1 and lines[1].startswith(_LONG_SHEBANG):
        lines[0] = b"#!" + lines[1].removeprefix(_LONG_SHEBANG)
    with contextlib.suppress(ValueError):
        return shlex.split(os.fsdecode(lines[0][2:]))[:1]
    return []


def _base_interpreter(path: str) -> tuple[str, list[str]]:
    """Return a virtual environment's base interpreter, and the file that names it (PEP 405)."""
    interpreter = Path(path)
    said = str(interpreter.parent.parent / "pyvenv.cfg")
    if interpreter.name.startswith("python"):
        for line in _head(said).splitlines():
            key, _, value = os.fsdecode(line).partition("=")
            if key.strip().lower() == "home":
                names = (f"{value.strip()}/{n}" for n in (interpreter.name, "python3", "python"))
                return said, [name for name in names if _is_file(name)][:1]
    return said, []


def _head(path: str) -> bytes:
    """Return the beginning of a regular file; empty for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(_HEAD_BYTES) if is_file else b""
    except (OSError, ValueError):
        return b""


# --- path to one file --------------------------------------------------------------------


def _places(path: str, *, of_one_owner: bool = True) -> list[str]:
    """Return `path`, and its target after each link on the way.

    Args:
        path: As something names it.
        of_one_owner: Follow a user's link only to files of the same user, so that no user exposes
            another user's file to the engine.
    """
    places = [path]
    nodes, arrived = _follow(path, _node, places)
    leaders = {n.uid for n in nodes if stat.S_ISLNK(n.mode)}
    if not arrived or (of_one_owner and leaders - {_ROOT, nodes[-1].uid}):
        return [path]
    return list(dict.fromkeys(places))


def _walk(path: str, use: Use, look: Callable[[str], Node | None]) -> Walk:
    nodes, arrived = _follow(path, look, [])
    return Walk(nodes=tuple(nodes), use=use, arrived=arrived)


def _follow(
    path: str, look: Callable[[str], Node | None], places: list[str]
) -> tuple[list[Node], bool]:
    """Return the nodes on the way to `path`, and whether the path exists; adds link targets to `places`."""
    nodes: list[Node] = []
    pending = deque(path.split("/"))
    here, links = "", 0
    while pending:
        part = pending.popleft()
        if part in {"", "."}:
            continue
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        there = f"{here}/{part}"
        node = look(there)
        if node is None:
            return nodes, False
        nodes.append(node)
        if not stat.S_ISLNK(node.mode):
            here = there
            continue
        links += 1
        target = _target(there)
        if target is None or links > _MOST_LINKS:
            return nodes, False
        here = "" if target.startswith("/") else here
        pending.extendleft(reversed([p for p in target.split("/") if p]))
        places.append(os.path.normpath("/".join((here, *pending))))
    return nodes, True


def _target(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except OSError:
        return None


def _node(path: str) -> Node | None:
    """Return the node at `path`; None: there is none, or it may not be seen."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return Node(
        path=path,
        mode=status.st_mode,
        uid=status.st_uid,
        gid=status.st_gid,
        owner=_owner(status.st_uid),
        has_acl=_has_acl(path),
    )


_owner = cache(user_name)


def _has_acl(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "system.posix_acl_access", follow_symlinks=False))
    except OSError:
        return False


# --- presence of what an engine needs ------------------------------------------------

_MOST_THREADS: Final = 4
_BY_FAULT: Final = {
    ModelFileFault.DAMAGED: Presence.DAMAGED,
    ModelFileFault.MISSING: Presence.MISSING,
    ModelFileFault.NOT_CHECKED: Presence.UNKNOWN,
}


def model_presence(applied: Applied, models: ModelChecks) -> tuple[Presence, str]:
    """Tell whether the model exists and, as far as its headers tell, is whole.

    Args:
        applied: The profile.
        models: Checks, which remember their results.

    Returns:
        A phrase beside it says how a model is damaged or incomplete; empty: it is not seen to be.
    """
    path = applied.model_path
    if path is None:
        return Presence.PRESENT, ""
    presence = _presence(path)
    reference = reference_of(applied.engine, applied.model, path)
    if presence is not Presence.PRESENT or reference is None:
        return presence, ""
    fault = models.fault(reference)
    if fault is None:
        return presence, ""
    return _BY_FAULT[fault.fault], fault.problem


class ModelPresences:
    """Presence of models for a daemon: looked at in threads of its own, each model once at a time.

    Whoever supplies a model decides how long its headers are, and a file system may not answer at all: neither
    keeps a thread of another task, nor a caller for longer than a deadline.

    Args:
        look: Looks at one model; may take long.
        deadline_s: Time for it, after which the model is unknown; its own budget ends before that.
    """

    def __init__(
        self,
        look: Callable[[Applied, ModelChecks], tuple[Presence, str]] = model_presence,
        *,
        deadline_s: float = 8.0,
    ) -> None:
        self._look = look
        self._deadline_s = deadline_s
        self._models = ModelChecks()
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="model files")
        self._running: dict[Hashable, Future[tuple[Presence, str]]] = {}

    async def of(self, applied: Applied) -> tuple[Presence, str]:
        """Return what `model_presence` does; the model is unknown where that takes too long."""
        key = applied.engine, applied.model, applied.model_path
        running = self._running.get(key)
        if running is None:
            running = self._threads.submit(self._look, applied, self._models)
            self._running[key] = running
            running.add_done_callback(lambda _: self._running.pop(key, None))
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(asyncio.wrap_future(running))
        except TimeoutError:
            return Presence.UNKNOWN, f"its files were not read within {self._deadline_s:.0f} s"


def draft_presence(applied: Applied) -> Presence:
    """Tell whether the draft model exists, where the profile has one."""
    return Presence.PRESENT if applied.draft_path is None else _presence(applied.draft_path)


def missing_adapters(applied: Applied) -> tuple[str, ...]:
    """Return the names of the adapters that do not exist."""
    return tuple(a.name for a in applied.adapters if _presence(a.path) is Presence.MISSING)


def engine_presence(applied: Applied) -> Presence:
    """Tell whether the engine's program exists, and the Python package that it needs."""
    engine = ENGINES.get(applied.engine)  # None: a header of another release
    module = "" if engine is None else engine.needs_python_module
    if module and importlib.util.find_spec(module) is None:
        return Presence.MISSING
    return _presence(applied.binary)


def _presence(path: str) -> Presence:
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return Presence.MISSING
    except OSError:
        return Presence.UNKNOWN
    return Presence.PRESENT

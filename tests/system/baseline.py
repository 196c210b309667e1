"""Configuration of a box that tests share, as each of them finds it."""

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from appliance.model.names import unit_of
from tests.pretend.boxes import ENGINE

_FOLDERS: Final = ("etc/appliance", "etc/systemd/system", str(Path(ENGINE).parent).lstrip("/"))


class Baseline:
    """Files below the folders that tests write in, with what was in them.

    They are read and written from outside: a look costs no process in the box.
    """

    def __init__(self, root: Path) -> None:
        """Keep what is there now.

        Args:
            root: The box's root as this process sees it, the same through all its boots.
        """
        self._root = root
        self._kept = self._read()

    def put_back(self) -> set[Path]:
        """Make the files what they were; return those that differed, relative to the root.

        Units of the profiles are left to the next apply: until then they would be edits by hand.
        """
        changed = self.changed()
        for path in changed:
            kept, target = self._kept.get(path), self._root / path
            if kept is None:
                target.unlink()
            elif not (fnmatch(path.name, unit_of("*")) and target.exists()):
                target.parent.mkdir(parents=True, exist_ok=True)
                mode, content = kept
                target.write_bytes(content)
                target.chmod(mode)
        return changed

    def changed(self) -> set[Path]:
        """Return the files that are not what they were, relative to the root."""
        found = self._read()
        paths = self._kept.keys() | found.keys()
        return {path for path in paths if self._kept.get(path) != found.get(path)}

    def _read(self) -> Mapping[Path, tuple[int, bytes]]:
        return {
            path.relative_to(self._root): (path.stat().st_mode & 0o7777, path.read_bytes())
            for folder in _FOLDERS
            for path in (self._root / folder).rglob("*")
            if path.is_file() and not path.is_symlink()
        }

"""Reader of the operator's canary files, ``NAME.jsonl`` for each profile."""

import asyncio
import errno
from pathlib import Path
from typing import Final

from appliance.model.names import HEALTH_USER
from appliance.speed.canaries import MOST_FILE_BYTES, CanaryFile, parse_canaries
from appliance.system.files.regular import OddFileError, Stamp, read_small_file, stamp

_NO_FILE: Final = CanaryFile()


class CanaryDirectory:
    """Directory of canary files.

    A file is parsed again only when it has changed, in a thread: the disk of ``/etc`` may be slow.

    Args:
        path: Of the directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parsed: dict[str, tuple[Stamp, CanaryFile]] = {}

    async def read(self, profile: str) -> CanaryFile:
        """Return the canaries of a profile; a file that cannot be read is one of its problems."""
        return await asyncio.to_thread(self._read, profile)

    def _read(self, profile: str) -> CanaryFile:
        path = self._path / f"{profile}.jsonl"
        # Before the reading: a file that is replaced meanwhile is read once more.
        seen = stamp(path)
        known = self._parsed.get(profile)
        if known is not None and known[0] == seen:
            return known[1]
        self._parsed.pop(profile, None)
        try:
            text = read_small_file(path, MOST_FILE_BYTES, follow_links=True).decode()
        except FileNotFoundError:
            return _NO_FILE
        except UnicodeDecodeError:
            return CanaryFile(problems=("the file is no text in UTF-8",))
        except OddFileError as error:
            return CanaryFile(problems=(f"the file {error.strerror}",))
        except OSError as error:
            return CanaryFile(problems=(_unreadable(error, path),))
        found = parse_canaries(text)
        if seen is not None:
            self._parsed[profile] = seen, found
        return found


def _unreadable(error: OSError, path: Path) -> str:
    if error.errno == errno.EACCES:
        return f"the file cannot be read: chgrp {HEALTH_USER} {path}; chmod 640 {path}"
    return f"the file cannot be read: {error.strerror}"

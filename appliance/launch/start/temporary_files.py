"""The directory for an engine's temporary files: made, and cleared of what the last run left.

Engines that are killed leave sockets, locks and half-written files. What PyTorch's compiler
keeps there (`KEPT`) is a cache, and spares the next start minutes.
"""

from __future__ import annotations

import os

from appliance.launch.program import WARNING, say

KEPT = "torchinductor_"
"""How the names of what is kept begin: torch._inductor.runtime.cache_dir_utils."""


def prepare(directory: str) -> None:
    """Make `directory`, or clear it; an engine also starts with one that is not as it should be.

    Links are removed and never followed.
    """
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        with os.scandir(directory) as entries:
            for entry in entries:
                if not entry.name.startswith(KEPT):
                    _remove(entry)
    except OSError as error:
        say(WARNING, f"temporary files stay: {error.filename}: {error.strerror}")


def _remove(entry: os.DirEntry[str]) -> None:
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.path)
        return
    import shutil  # noqa: PLC0415 - 10 ms, and directories are rare

    shutil.rmtree(entry.path)

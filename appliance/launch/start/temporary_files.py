"""Directory for an engine's temporary files, cleared of what the last run left.

Engines that are killed leave sockets, locks and half-written files. The files of PyTorch's
compiler (`KEPT`) are a cache, which saves the next start minutes.
"""

from __future__ import annotations

import os

from appliance.launch.program import WARNING, say

KEPT = "torchinductor_"
"""Prefix of names that are kept: torch._inductor.runtime.cache_dir_utils."""


def prepare(directory: str) -> None:
    """Make `directory`, or clear it. Never raises: an engine starts with old files in it too.

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

"""Cost of a change, told by git: source files of the last commit that added a thing of its kind.

Such a commit adds one thing and nothing else, and says so in a trailer (git-interpret-trailers(1))::

    Adds: status field
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

THINGS: Final = ("status field", "alert rule", "verb", "setting", "profile key", "engine")


def source_files(repository: Path, thing: str) -> Sequence[str] | None:
    """Return the files of the package that the last commit for a thing changed; None: there is none.

    Args:
        repository: Folder of the repository.
        thing: One of `THINGS`.
    """
    commit = _git(repository, "log", "-1", "--format=%H", f"--grep=^Adds: {thing}$").strip()
    if not commit:
        return None
    changed = _git(repository, "show", "--format=", "--name-only", commit, "--", "appliance")
    return changed.splitlines()


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout

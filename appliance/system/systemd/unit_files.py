"""Files of units where systemd looks for them, read without asking systemd (systemd.unit(5), unit file load path)."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from appliance.model.errors import StoreError
from appliance.system.files.regular import read_small_file

DIRECTORIES: Final = (
    Path("/etc/systemd/system"),
    Path("/run/systemd/system"),
    Path("/usr/local/lib/systemd/system"),
    Path("/usr/lib/systemd/system"),
    Path("/lib/systemd/system"),
)
"""Directories of system units; the first that has a unit counts."""
_GENERATED: Final = tuple(
    Path(f"/run/systemd/{name}") for name in ("generator", "generator.early", "generator.late")
)
_WITH_FILES: Final = (".path", ".service", ".socket", ".target", ".timer")
"""Kinds of units that always have a file; others come from the kernel, a mount table or other units."""
_MOST_BYTES: Final = 256 << 10
_MOST_DROP_INS: Final = 64


def unit_file_text(name: str, directories: Sequence[Path] = DIRECTORIES) -> str | None:
    """Return the text of a unit, its drop-ins after it; None: there is no such unit.

    Args:
        name: Name with its suffix, without a directory; of an instance also that of its template.
        directories: Where to look.

    Raises:
        StoreError: a file cannot be read.
    """
    template = _template_of(name)
    for candidate in filter(None, (name, template)):
        for directory in directories:
            text = _text(directory / candidate)
            if text is not None:
                drop_ins = (_text(path) for path in _drop_ins(candidate, directories))
                return "\n".join([text, *filter(None, drop_ins)])
    return None


def lacks_file(name: str, directories: Sequence[Path] = (*DIRECTORIES, *_GENERATED)) -> bool:
    """Tell whether no unit of this name can be there; False also where there is no systemd at all."""
    if not name.endswith(_WITH_FILES) or not any(map(Path.is_dir, directories)):
        return False
    names = [candidate for candidate in (name, _template_of(name)) if candidate]
    return not any(os.path.lexists(path / one) for path in directories for one in names)


def _template_of(name: str) -> str:
    """Return ``vllm@.service`` of ``vllm@qwen.service``; empty: it is no instance."""
    stem, at, rest = name.partition("@")
    suffix = rest.rpartition(".")[2]
    return f"{stem}@.{suffix}" if at else ""


def _drop_ins(name: str, directories: Sequence[Path]) -> Iterator[Path]:
    """Yield drop-ins in systemd's order: by their names, the first directory's of each name."""
    found: dict[str, Path] = {}
    for directory in directories:
        for path in (directory / f"{name}.d").glob("*.conf"):
            found.setdefault(path.name, path)
    for _, path in sorted(found.items())[:_MOST_DROP_INS]:
        yield path


def _text(path: Path) -> str | None:
    try:
        return read_small_file(path, _MOST_BYTES, follow_links=True).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error

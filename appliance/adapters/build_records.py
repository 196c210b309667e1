"""Records of what engines' programs say about their own builds; `appliance.protocol.build_record` has the format.

Standard library only, and little of it: the wrapper reads a record before a start. A record that
cannot be read is as if absent.
"""

from __future__ import annotations

from appliance.adapters.files.regular import read_small_file, stamp
from appliance.protocol.build_record import MAX_BYTES, BuildRecord, decoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from appliance.domain.engine_build import EngineBuild
    from appliance.domain.profile import Catalogue


def read_record(path: str) -> BuildRecord | None:
    """Return a record; None: there is none that can be read."""
    try:
        return decoded(read_small_file(path, MAX_BYTES))
    except OSError:
        return None


def is_current(record: BuildRecord, program: str) -> bool | None:
    """Tell whether an answer is of `program` as it is now; None: this process may not look."""
    if not record.stamps or record.program != program:
        return False
    now = {path: stamp(path) for path in record.stamps}
    known = {path: seen for path, seen in now.items() if seen is not None}
    if any(record.stamps[path] != seen for path, seen in known.items()):
        return False
    hidden = any(then is not None and path not in known for path, then in record.stamps.items())
    return None if hidden else True


def current_build(path: str, program: str, *, certain: bool = False) -> EngineBuild | None:
    """Return the build in a record whose files have not changed.

    Args:
        path: Of the record.
        program: Path of the program that is meant.
        certain: Only if this process can see that; else also where it may not look.

    Returns:
        None: nobody has asked since the last change.
    """
    record = read_record(path)
    if record is None:
        return None
    current = is_current(record, program)
    return record.build if current or (current is None and not certain) else None


def current_builds(catalogue: Catalogue, directory: str) -> dict[str, EngineBuild]:
    """Return the builds of the profiles' engines, as far as they are known, by profile."""
    found: dict[str, EngineBuild] = {}
    for name, applied in catalogue.items():
        build = current_build(f"{directory}/{name}.json", applied.binary)
        if build is not None:
            found[name] = build
    return found

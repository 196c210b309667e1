"""Reader of the gate's verdicts (`appliance.protocol.gate_verdict`)."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from appliance.adapters.files.regular import read_small_file
from appliance.domain.names import is_profile_name
from appliance.protocol.gate_verdict import MAX_BYTES, SUFFIX, GateVerdict, decoded


def read_verdicts(directory: Path) -> Iterator[tuple[str, GateVerdict]]:
    """Yield profiles with the gate's last verdict on them, damaged files left out."""
    try:
        files = sorted(directory.glob(f"*{SUFFIX}"))
    except OSError:
        return
    for file in files:
        if is_profile_name(file.stem) and (verdict := _read(file)) is not None:
            yield file.stem, verdict


def refusals_in(directory: Path) -> Mapping[str, str]:
    """Return why the gate last refused a start, by profile; admitted ones are absent."""
    return {name: v.reason for name, v in read_verdicts(directory) if not v.admitted}


def admissions_in(directory: Path) -> Mapping[str, str]:
    """Return what the gate waited for before it last admitted a start, by profile."""
    return {name: v.reason for name, v in read_verdicts(directory) if v.admitted}


def _read(file: Path) -> GateVerdict | None:
    try:
        return decoded(read_small_file(file, MAX_BYTES))
    except OSError:  # the gate has replaced or removed it meanwhile
        return None

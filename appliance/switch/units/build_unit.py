"""Units that ask engines about their builds: one beside each backend whose engine can be asked.

The unit is made from the text of the backend's, so that the program is asked as the same user and in
the same view of the file system, hand edits included. It has no GPU, no network, nothing that it may
write but its record, which systemd opens for it in a directory of root's, and little memory and time:
what runs is a program of somebody else, and a running model must not notice.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from appliance.engines import ENGINES
from appliance.model.names import build_unit_of
from appliance.model.paths import CLAIMED_DIR
from appliance.model.profile import Applied
from appliance.switch.units import sandbox
from appliance.switch.units.drift import drop_in
from appliance.switch.units.specs import Layout, record_path
from appliance.switch.units.text import (
    Section,
    command_line,
    plain_line,
    sealed,
    sections_of,
    text_of,
)

_PROGRAM: Final = "appliance.launch.ask_build"
_TIMEOUT_S: Final = 30
"""Longer than the program itself waits for an answer (launch.ask_build)."""
_BOUNDS: Final[sandbox.Entries] = (
    ("TimeoutStartSec", f"{_TIMEOUT_S}s"),
    ("TimeoutStopSec", "5s"),
    ("MemoryMax", "2G"),
    ("MemorySwapMax", "0"),
    ("TasksMax", "256"),
    ("LimitFSIZE", "1M"),
    ("LimitCORE", "0"),
    ("Nice", "10"),
    ("OOMScoreAdjust", "800"),
    # systemd opens the record; the supervisor reads it.
    ("UMask", "0022"),
    ("PrivateNetwork", "yes"),
    ("IPAddressDeny", "any"),
    ("RestrictAddressFamilies", "AF_UNIX"),
)
_OF_BACKEND: Final = frozenset(
    {
        *("User", "Group", "DynamicUser", "Environment"),
        *("ProtectHome", "BindReadOnlyPaths", "TemporaryFileSystem", "InaccessiblePaths"),
        *(key for key, _ in sandbox.CONFINEMENT),
    }
)
"""Keys of [Service] that the unit has in common with the backend's."""


def build_unit(applied: Applied, backend: str, drop_ins: Iterable[str], layout: Layout) -> str:
    """Return the text of the unit that asks the engine of `applied`; empty: it is never asked.

    Args:
        applied: An applied profile.
        backend: Text of its unit.
        drop_ins: Texts of the unit's drop-ins, in systemd's order.
        layout: What units are rendered for.
    """
    engine = ENGINES.get(applied.engine)  # None: a manifest of another release
    if engine is None or not engine.build_question:
        return ""
    for one in drop_ins:
        backend = drop_in(backend, one)
    record = record_path(applied, layout)
    question = ("--record", record, "--ask", engine.build_question, "--", applied.binary)
    program = (f"{layout.prefix}/bin/python", "-I", "-m", _PROGRAM, *question)
    name = plain_line(applied.name)
    sections = (
        Section(
            name="Unit",
            entries=(
                ("Description", f"{name}: build of its engine"),
                ("CollectMode", "inactive-or-failed"),
            ),
        ),
        Section(
            name="Service",
            entries=(
                ("Slice", "appliance.slice"),
                ("SyslogIdentifier", build_unit_of(applied.name).removesuffix(".service")),
                ("Type", "oneshot"),
                ("ExecStart", command_line(program)),
                ("StandardOutput", f"file:{record.replace('%', '%%')}"),
                ("StandardError", "journal"),
                *_BOUNDS,
                *sandbox.devices(gpus=False),
                *_shared(backend),
            ),
        ),
    )
    source = plain_line(applied.source_path)
    return sealed(text_of(sections), source=source, version=layout.version, adoptable=False)


def _shared(backend: str) -> Iterator[tuple[str, str]]:
    for section in sections_of(backend):
        if section.name == "Service":
            # The leases of the claim are for the backend alone.
            yield from (
                (key, value)
                for key, value in section.entries
                if key in _OF_BACKEND and f":{CLAIMED_DIR}/" not in value
            )

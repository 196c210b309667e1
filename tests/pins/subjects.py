"""The subjects of pins, and what makes each."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.pins import applied, changed, said, statuses

AS_ROOT: Final = "cli-as-root"
"""The subject that only root can make."""
SUBJECTS: Final[Mapping[str, Callable[[], dict[str, str]]]] = {
    "apply": applied.make,
    "changes": changed.make,
    "status": statuses.make,
    "cli": said.make,
    AS_ROOT: said.make_as_root,
}

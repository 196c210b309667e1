"""The subjects of pins, and what makes each."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.pins import applied, changed, statuses

SUBJECTS: Final[Mapping[str, Callable[[], dict[str, str]]]] = {
    "apply": applied.make,
    "changes": changed.make,
    "status": statuses.make,
}

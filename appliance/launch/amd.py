"""AMD's GPUs, from the files of the amdgpu kernel driver."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def cards(root: str = "/") -> list[str]:
    return []


class Driver:
    def __init__(self, found: list[str], root: str = "/") -> None:
        pass

    def read(self, with_processes: bool) -> list[dict[str, Any]]:  # noqa: FBT001
        return []

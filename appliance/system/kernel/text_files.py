"""Text files of the kernel in /proc and /sys: their text, and the figures in them."""

from __future__ import annotations

import os

PROC = "/proc"
_READ_BYTES = 1 << 16
_MEMINFO = ("proc", "meminfo")
_MOST_DIGITS = 20
_NODES = ("sys", "devices", "system", "node")


def read(path: str) -> str:
    """Return a small file as text, at most 64 KiB; empty when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _READ_BYTES).decode(errors="replace")
    except OSError:  # the process ended under the read
        return ""
    finally:
        os.close(descriptor)


def read_all(path: str) -> str:
    """Return a table of any length as text; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def is_number(text: str) -> bool:
    """Tell whether a text is a decimal number as the kernel writes one, of at most 64 bits."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def text_of(*path: str) -> str:
    """Return a small file without white space around it; empty when it cannot be read."""
    return read(os.path.join(*path)).strip()


def number_of(*path: str) -> int | None:
    """Return the decimal number in a file; None: there is none."""
    text = text_of(*path)
    return int(text) if is_number(text) else None


def kib_table(text: str) -> dict[str, int]:
    """Return the bytes in lines like ``MemTotal:  5 kB``, also after ``Node 0``, by name."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if name and words[1:] == ["kB"] and is_number(words[0]):
            values[name.split()[-1]] = int(words[0]) << 10
    return values


def meminfo(root: str = "/") -> tuple[int, int]:
    """Return the host's MemTotal and MemAvailable, proc(5), in bytes; zero when not readable."""
    values = kib_table(read(os.path.join(root, *_MEMINFO)))
    return values.get("MemTotal", 0), values.get("MemAvailable", 0)


def node_meminfo(node: int, root: str = "/") -> int | None:
    """Return the bytes of NUMA node `node` that are free or can be freed; None: no device's node.

    A device's memory is a node without processors. File pages become free, those of tmpfs do not.
    """
    folder = os.path.join(root, *_NODES, f"node{node}")
    values = kib_table(read(os.path.join(folder, "meminfo")))
    if not values.get("MemTotal") or text_of(folder, "cpulist"):
        return None
    cached = values.get("FilePages", 0) - values.get("Shmem", 0)
    return values.get("MemFree", 0) + max(0, cached)

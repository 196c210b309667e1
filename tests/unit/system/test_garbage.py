"""Garbage collections of a daemon."""

import subprocess
import sys


def test_objects_of_the_start_are_exempt() -> None:
    """A collection afterwards has only newer objects to look at, and still runs."""
    program = (
        "import gc, appliance.system.garbage as garbage\n"
        "before = len(gc.get_objects())\n"
        "garbage.freeze_garbage()\n"
        "print(gc.isenabled(), gc.get_freeze_count() > before / 2, len(gc.get_objects()) < before / 2)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True True True\n"

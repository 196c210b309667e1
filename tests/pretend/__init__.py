"""A machine with GPUs that are not there: the driver library, who holds memory, an engine.

`driver.c` says what the library can do, `holds.h` how a process holds memory of it.
"""

from tests.pretend.boxes import gpus_of, install
from tests.pretend.building import build
from tests.pretend.gpus import GIB, Gpus, Hold

__all__ = ["GIB", "Gpus", "Hold", "build", "gpus_of", "install"]

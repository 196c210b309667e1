"""A program that holds memory of a real GPU through the CUDA driver API, until it is killed.

``CUDA_VISIBLE_DEVICES=GPU-… python -I …/holder.py BYTES [PINNED_BYTES]``. Once everything is
allocated and written to it prints one line, the bytes that it holds on the GPU. It keeps the
default reaction to every signal: SIGTERM ends it as it ends an engine that does not clean up.
"""

import ctypes
import signal
import sys
from typing import Any, Final

_CHUNK_BYTES: Final = 1 << 30
_PATTERN: Final = 0xA5


class Cuda:
    """The driver API on the first visible device. Raises OSError without a library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        device = ctypes.c_int()
        context = ctypes.c_void_p()
        self._do("cuInit", ctypes.c_uint(0))
        self._do("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        # The context that frameworks use; its functions were never given another signature.
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._do("cuCtxSetCurrent", context)

    def take(self, size: int) -> None:
        """Memory of the device, written to."""
        address = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self._do("cuMemsetD8_v2", address, ctypes.c_ubyte(_PATTERN), ctypes.c_size_t(size))
        self._do("cuCtxSynchronize")

    def pin(self, size: int) -> None:
        """Memory of the host that the device can reach; the driver gives it back slowly."""
        address = ctypes.c_void_p()
        self._do("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(size))
        ctypes.memset(address, _PATTERN, size)

    def _do(self, function: str, *arguments: Any) -> None:
        result = getattr(self._library, function)(*arguments)
        if result:
            raise SystemExit(f"{function} answers {result}")


def in_chunks(size: int) -> list[int]:
    """A size as an engine allocates it: in large pieces, the last one smaller."""
    whole, rest = divmod(size, _CHUNK_BYTES)
    return [_CHUNK_BYTES] * whole + [rest] * (rest > 0)


def main(size: int, pinned: int = 0) -> None:
    """Allocate, tell, wait."""
    cuda = Cuda()
    for chunk in in_chunks(size):
        cuda.take(chunk)
    for chunk in in_chunks(pinned):
        cuda.pin(chunk)
    sys.stdout.write(f"{size}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

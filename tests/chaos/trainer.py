"""Foreign program on the GPU: takes memory when told to, keeps it until its input ends."""

import ctypes
import os
import sys


def main() -> None:
    """``trainer.py GPU BYTES``: answers with its pid, then "took" or "full" after one line."""
    driver = ctypes.CDLL("libnvidia-ml.so.1")
    gpu, size_bytes = int(sys.argv[1]), int(sys.argv[2])
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    if not sys.stdin.readline():
        return
    code = driver.pretendAlloc(gpu, ctypes.c_longlong(size_bytes))
    sys.stdout.write("full\n" if code else "took\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()

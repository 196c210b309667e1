"""Times the shell lines on standard input, in a box. Prints a JSON list of milliseconds.

usage: stopwatch.py PAUSE_S <LINES
"""

import json
import shlex
import subprocess
import sys
import time


def main() -> None:
    """Every line must succeed."""
    pause_s = float(sys.argv[1])
    times = []
    for line in sys.stdin.read().splitlines():
        argv = shlex.split(line)
        time.sleep(pause_s)
        began = time.monotonic()
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        times.append((time.monotonic() - began) * 1000)
        if done.returncode:
            sys.exit(f"{line} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    sys.stdout.write(json.dumps(times) + "\n")


if __name__ == "__main__":
    main()

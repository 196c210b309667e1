"""Compare or renew the pins: ``python -m tests.pins [--write] [SUBJECT …]``."""

import argparse
import logging
import sys

from tests.pins.pin_files import differences, store, summary
from tests.pins.subjects import SUBJECTS


def main() -> int:
    """Print what differs; with ``--write`` store it. Exit status 1: something differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--write", action="store_true", help="store what is made now")
    asked = parser.parse_args()
    logging.disable()
    found = [
        difference
        for subject in asked.subjects or SUBJECTS
        for difference in differences(subject, SUBJECTS[subject]())
    ]
    if asked.write:
        store(found)
    else:
        sys.stdout.writelines(f"{line}\n" for difference in found for line in difference.lines())
    sys.stdout.writelines(f"{line}\n" for line in summary(found))
    return int(bool(found) and not asked.write)


if __name__ == "__main__":
    sys.exit(main())

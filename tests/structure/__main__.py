"""Print figures of the code's structure: ``python -m tests.structure``, the last line as JSON.

Above it, the names behind each count. What is counted is defined in the package.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.structure.changes import THINGS, source_files
from tests.structure.importers import with_one_importer
from tests.structure.shapes import same_shape
from tests.structure.source_tree import read_tree
from tests.structure.walks import PAGE, files_of, walks

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Count, and print."""
    tree = read_tree(ROOT / "appliance")
    pairs = same_shape(tree)
    figures: dict[str, int | None] = {
        "modules": len(tree.modules),
        "lines": tree.lines,
        "code_lines": tree.code_lines,
        "pairs_of_one_shape": len(pairs),
        "identical_pairs": sum(pair.identical for pair in pairs),
    }
    _list("pairs of one shape", pairs)
    alone = with_one_importer(tree)
    _list("modules with one importer", alone)
    figures["modules_with_one_importer"] = len(alone)
    for heading, hops in walks((ROOT / PAGE).read_text("utf-8")).items():
        files = files_of(hops, ROOT / "appliance")
        _list(heading, files)
        figures[f"files_on_{heading.partition(':')[0].lower().replace(' ', '_')}"] = len(files)
    for thing in THINGS:
        changed = source_files(ROOT, thing)
        _list(f"files of a change: {thing}", changed or ())
        figures[f"files_to_add_{thing.replace(' ', '_')}"] = (
            None if changed is None else len(changed)
        )
    sys.stdout.write(f"{json.dumps(figures)}\n")


def _list(title: str, found: Iterable[object]) -> None:
    names = [str(one) for one in found]
    sys.stdout.write(f"{title}: {len(names)}\n")
    sys.stdout.writelines(f"  {name}\n" for name in names)


if __name__ == "__main__":
    main()

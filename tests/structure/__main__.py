"""Print figures of the code's structure: ``python -m tests.structure``, the last line as JSON.

Above it, the names behind each count. What the counts mean is defined in `counts`.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.structure.change_table import PAGE, THINGS, by_hand, changes
from tests.structure.inheritance import with_one_implementation
from tests.structure.references import used_once
from tests.structure.shared_names import SHARED_NAMES
from tests.structure.source_tree import SMALL_LINES, SourceTree, read_tree

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Count, and print."""
    tree, tests = read_tree(ROOT / "appliance"), read_tree(ROOT / "tests")
    rows = changes((ROOT / PAGE).read_text("utf-8"))
    figures: dict[str, float] = {
        "modules": len(tree.modules),
        "lines": tree.lines,
        "code_lines": tree.code_lines,
        "median_module_lines": tree.median_module_lines,
    }
    named = {
        f"modules_under_{SMALL_LINES}_lines": tree.small_modules,
        "private_functions_used_once": used_once(tree),
        "protocols_with_one_implementation": with_one_implementation(tree, tests),
        "protocols_with_one_implementation_without_fakes": with_one_implementation(
            tree, SourceTree(files=[])
        ),
        "names_used_twice": [n for n in tree.names_used_twice if n not in SHARED_NAMES],
    }
    for title, names in named.items():
        _list(title, names)
        figures[title] = len(names)
    for thing in THINGS:
        figures[f"files_to_add_{thing.replace(' ', '_')}"] = by_hand(rows, thing)
    sys.stdout.write(f"{json.dumps(figures)}\n")


def _list(title: str, names: Sequence[str]) -> None:
    sys.stdout.write(f"{title.replace('_', ' ')}: {len(names)}\n")
    sys.stdout.writelines(f"  {name}\n" for name in names)


if __name__ == "__main__":
    main()

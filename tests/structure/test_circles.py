"""Modules import one another in one direction."""

from pathlib import Path

from tests.structure.circles import circles
from tests.structure.source_tree import SourceFile, SourceTree, read_tree

ROOT = Path(__file__).parents[2]


def test_a_circle_is_found_wherever_its_imports_stand() -> None:
    """Imports in functions and for type checkers alone close a circle too."""
    texts = {
        "p.a": "from p.b import x\n",
        "p.b": "if TYPE_CHECKING:\n    from p import c\n",
        "p.c": "def f():\n    import p.a\n",
        "p.d": "from p.a import x\nfrom p.e import y\n",
        "p.e": "import os\n",
    }
    tree = SourceTree(files=[SourceFile(name=name, text=text) for name, text in texts.items()])
    assert circles(tree) == [["p.a", "p.b", "p.c"]]


def test_there_is_no_circle() -> None:
    """Each module can be understood with what it imports, and without what imports it."""
    assert circles(read_tree(ROOT / "appliance")) == []

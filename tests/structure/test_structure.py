"""The counts of `tests.structure`, on made trees, and the table in the documentation."""

from pathlib import Path
from textwrap import dedent

import pytest

from tests.structure.change_table import PAGE, THINGS, by_hand, changes
from tests.structure.inheritance import with_one_implementation
from tests.structure.references import used_once
from tests.structure.shared_names import SHARED_NAMES
from tests.structure.source_tree import SourceFile, SourceTree, read_tree

ROOT = Path(__file__).parents[2]
EMPTY = SourceTree(files=[])


def tree(**texts: str) -> SourceTree:
    """A package `p` with these modules."""
    return SourceTree(
        files=[SourceFile(name=f"p.{name}", text=dedent(text)) for name, text in texts.items()]
    )


def test_packages_are_named_by_their_folder(tmp_path: Path) -> None:
    """Files have the names that they are imported by; a docstring alone is no module."""
    for path, text in {
        "__init__": "",
        "a": "x = 1\n",
        "b/__init__": '"""B."""\n',
        "b/c": "y = 2",
    }.items():
        file = tmp_path / "p" / f"{path}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    found = read_tree(tmp_path / "p")
    assert [file.name for file in found.files] == ["p", "p.a", "p.b", "p.b.c"]
    assert [file.name for file in found.modules] == ["p.a", "p.b.c"]


def test_lines_of_code_are_neither_docstrings_nor_comments_nor_blank() -> None:
    """A text that is a value is code, lines in it that look like comments too."""
    text = '''\
    """Docstring
    of two lines."""

    # A comment.
    SCRIPT = """\\
    #!/bin/sh
    """

    class A:
        """Docstring."""

        x: int = 1  # code
        """Docstring of x."""
    '''
    found = tree(a=text)
    assert (found.lines, found.code_lines) == (13, 5)


def test_modules_have_a_median_and_some_are_small() -> None:
    """39 lines are a small module, 40 are not; what holds no code is not in the median."""
    found = tree(a="x = 1\n" * 39, b="x = 1\n" * 40, c="x = 1\n" * 61, d='"""Nothing."""\n')
    assert found.median_module_lines == 40
    assert found.small_modules == ["p.a"]


FUNCTIONS = """\
def _once(): pass
def _never(): pass
def _twice(): pass
def _recursive(n): return _recursive(n - 1)
def _imported(): pass
def __getattr__(name): return name
__getattr__("x")
def public():
    def _nested(): pass
    _nested(), _once(), _twice(), _recursive(3)
    return map(_twice, ())
"""


def test_a_private_function_is_counted_by_its_references() -> None:
    """Calls, mentions, recursion and imports are references; equal names elsewhere are not."""
    other = "def _once(): pass\ndef _never(): pass\n_once(); _once()\n"
    importer = "from p.a import _imported\nfrom p import b\nb._never()\n"
    assert used_once(tree(a=FUNCTIONS, b=other, c=importer)) == [
        "p.a._imported",
        "p.a._once",
        "p.b._never",
    ]


METHODS = """\
class A:
    def _once(self): return self._twice()
    def _twice(self): pass
    def _for_children(self): pass
    def _from_module(self): pass
    def go(self): self._once()
    def again(self): self._twice()

class Stranger:
    def _once(self): pass
    def go(self): self._once(), self._once()

def help(a): a._from_module()
"""
CHILD = """\
from p.a import A as Base

class Child(Base):
    def go(self): self._for_children()

class Other:
    def _from_module(self): pass
    def go(self): self._from_module(), self._from_module()
"""


def test_a_private_method_is_counted_by_its_references() -> None:
    """References by a class, its heirs and its module count; another class's namesake does not."""
    found = used_once(tree(a=METHODS, b=CHILD))
    assert found == ["p.a.A._for_children", "p.a.A._from_module", "p.a.A._once"]


PROTOCOLS = """\
from typing import Protocol

class One(Protocol):
    name: str
    def ask(self, question: str) -> str: ...

class Two(Protocol):
    @property
    def size(self) -> int: ...

class None_(Protocol):
    def missing(self) -> None: ...

class Callback(Protocol):
    def __call__(self, n: int) -> None: ...
"""
CLASSES = """\
from p.protocols import One

class Base:
    def ask(self, question, patience=1): pass

class Fits(Base):
    def __init__(self): self.name = "x"

class OtherParameter:
    name: str
    def ask(self, wish): pass

class NoName:
    def ask(self, question): pass

class Sized:
    size: int

class SizedToo:
    @property
    def size(self): return 1
"""


def test_a_protocol_is_implemented_by_what_has_its_members() -> None:
    """Members may be inherited; a parameter of another name is another method."""
    found = tree(protocols=PROTOCOLS, classes=CLASSES)
    assert with_one_implementation(found, EMPTY) == ["p.protocols.One"]


def test_a_fake_in_another_tree_is_an_implementation() -> None:
    """A protocol with a real class and a fake has two."""
    fake = tree(fake="from p.protocols import One\nclass Fake(One): pass\n")
    assert with_one_implementation(tree(protocols=PROTOCOLS, classes=CLASSES), fake) == []


def test_a_protocol_of_special_methods_does_not_count() -> None:
    """A protocol of special methods does not count: functions implement it, and are not sought."""
    assert with_one_implementation(tree(protocols=PROTOCOLS, other="class A: pass"), EMPTY) == []


def test_names_are_used_twice_by_classes_or_by_modules() -> None:
    """Classes and modules are counted apart; every package may have a __main__."""
    names = ("p.a", "p.q.a", "p.q.__main__", "p.__main__", "p.q")
    files = [
        SourceFile(name=name, text=f"class {c}: pass")
        for name, c in zip(names, "XYXqZ", strict=True)
    ]
    assert SourceTree(files=files).names_used_twice == ["X", "a"]


def test_a_name_is_used_twice_only_for_one_idea() -> None:
    """Each such name has its reason, and nothing is listed that is not used twice."""
    assert read_tree(ROOT / "appliance").names_used_twice == list(SHARED_NAMES)


TABLE = """\
# Page

| engine | `elsewhere.py` | hand | |

## What changes to add a thing

| Thing | File | By | What |
| --- | --- | --- | --- |
| engine | `a.py` | hand | one |
| engine | `b.py` (new) | hand | two |
| engine | `c.md` | generated | |
| verb | `a.py` | hand | three |

## Next

| engine | `d.py` | hand | |
"""


def test_the_table_is_read_from_its_section() -> None:
    """Rows of the one table count, and files that a generator writes do not."""
    rows = changes(TABLE)
    assert [by_hand(rows, thing) for thing in ("engine", "verb", "setting")] == [2, 1, 0]
    assert [row.file for row in rows if row.generated] == ["c.md"]


@pytest.mark.parametrize("thing", THINGS)
def test_files_in_the_table_exist(thing: str) -> None:
    """The page names files of the tree, and at least one for each thing."""
    files = [row.file for row in changes((ROOT / PAGE).read_text("utf-8")) if row.thing == thing]
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []

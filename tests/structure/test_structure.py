"""The counts of `tests.structure`, on made trees."""

import subprocess
from pathlib import Path
from textwrap import dedent

from tests.structure.changes import source_files
from tests.structure.importers import with_one_importer
from tests.structure.shapes import same_shape
from tests.structure.source_tree import SourceFile, SourceTree, read_tree


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


SHAPES = """\
from dataclasses import dataclass
from typing import ClassVar, Protocol

@dataclass
class One:
    a: int
    b: int
    c: int
    d: int
    e: int
    kind: ClassVar[str] = "x"

@dataclass
class Same:
    e: int
    d: int
    c: int
    b: int
    a: int

@dataclass
class Near:
    a: int
    b: int
    c: int
    d: int
    other: int
    more: int

@dataclass
class Far:
    a: int
    b: int
    c: int
    this: int
    that: int

@dataclass
class Small:
    a: int
    b: int
    c: int
    d: int

class Reader(Protocol):
    a: int
    b: int
    c: int
    d: int
    e: int
"""


def test_classes_of_one_shape_are_found() -> None:
    """Four fifths of the smaller class's fields are enough; few fields and protocols are not counted."""
    found = same_shape(tree(a=SHAPES))
    assert [str(pair) for pair in found] == [
        "p.a.Near ~ p.a.One",
        "p.a.Near ~ p.a.Same",
        "p.a.One = p.a.Same",
    ]


def test_what_is_inherited_is_declared_once() -> None:
    """A class is no twin of the one that it extends."""
    child = SHAPES + "@dataclass\nclass Child(One):\n    f: int\n"
    assert len(same_shape(tree(a=child))) == len(same_shape(tree(a=SHAPES)))
    narrow = "@dataclass\nclass Base:\n" + "".join(f"    n{n}: object\n" for n in range(6))
    narrow += "@dataclass\nclass Narrow(Base):\n" + "".join(f"    n{n}: int\n" for n in range(6))
    assert same_shape(tree(a=f"from dataclasses import dataclass\n\n{narrow}")) == []


def test_modules_with_one_importer() -> None:
    """Importing a module, or something from it, counts once for each importer; itself it does not import."""
    found = tree(
        a="x = 1\n",
        b="from p.a import x\nfrom p import a\n",
        c="from p import d\n",
        d="import p.d\nfrom p import b\n",
        e="import p.c, p.b\n",
    )
    assert with_one_importer(found) == ["p.a", "p.c", "p.d"]


def committed(repository: Path, message: str, *files: str) -> None:
    """A commit that changes these files."""
    for file in files:
        path = repository / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(message)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", message)


def git(repository: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *who, *arguments], cwd=repository, check=True, capture_output=True)


def test_the_cost_of_a_change_is_that_of_the_last_commit_of_its_kind(tmp_path: Path) -> None:
    """Source files of the newest commit with the trailer count; tests, pages and other commits do not."""
    git(tmp_path, "init", "-q")
    committed(tmp_path, "an old one\n\nAdds: verb", *[f"appliance/{n}.py" for n in "abc"])
    committed(
        tmp_path, "one\n\nAdds: verb", "appliance/a.py", "appliance/b.py", "tests/t.py", "x.md"
    )
    committed(tmp_path, "another kind\n\nAdds: verbs", "appliance/c.py")
    assert source_files(tmp_path, "verb") == ["appliance/a.py", "appliance/b.py"]
    assert source_files(tmp_path, "engine") is None

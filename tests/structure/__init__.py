"""Figures of the code's structure, counted on its syntax trees; standard library only.

modules
    Python files that hold more than a docstring: an empty `__init__` is none.
lines, code lines
    Of all Python files. A code line is not blank, not a comment alone and not part of a docstring,
    which is any statement that is a string: the text below a field counts as one.
private functions used once
    Functions and methods with one leading underscore, defined at module or class level, that have
    exactly one reference in the whole tree besides their definition. References to a function are
    its name in its own module, and its import or ``module._name`` in others. References to a method
    are attributes of its name in its class, in classes that inherit from it, and in the rest of its
    module outside classes with a private method of the same name. A recursive call is a reference.
    Nested functions do not count.
protocols with one implementation
    A class implements a protocol if it names it among its bases, or has all of its attributes and
    all of its methods with parameters of the same names, inherited ones too. Types are not
    compared. A protocol of special methods alone, such as ``__call__``, does not count.
names used twice
    Names that several classes have, or several modules and packages by the last part of their
    path; ``__main__`` aside.
files to add a thing
    From the table in docs/explanation/architecture.md: files that a person changes.
"""

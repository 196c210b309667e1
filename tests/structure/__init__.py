"""Figures of the code's structure, counted on its syntax trees; standard library only.

modules
    Python files that hold more than a docstring: an empty `__init__` is none.
lines, code lines
    Of all Python files. A code line is not blank, not a comment alone and not part of a docstring,
    which is any statement that is a string: the text below a field counts as one.
pairs of one shape
    Classes that declare the same fields twice, as `shapes.same_shape` defines it.
modules with one importer
    As `importers.with_one_importer` defines it.
files on a walk
    Modules that the walks of docs/explanation/walks.md name.
files of a change
    Source files that the last commit of its kind changed, as `changes.source_files` reads from git.
"""

"""Options of the engines' releases, as their packages declare them, against those that the appliance knows.

`recorded` has the dated lists that ``make check-options`` reads in the packages of the newest releases and
``python -m tests.bench.options_check --write`` stores here: names alone, with the package's version and hash.
`comparison` finds what a profile types, refuses or is written as and a release does not have.
"""

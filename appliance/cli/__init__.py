"""The command line: one grammar, one module a verb, imported only when that verb runs."""

from appliance.cli.untranslated import import_argparse

# Here, because every module of this package that imports argparse is imported later.
import_argparse()

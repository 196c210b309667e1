"""Verb `appliance profile`: a group of actions, each run by a module of its own.

Another action is its word in `appliance.cli.grammar` and its line here.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.terminal import Streams

_MODULES: Final[Mapping[str, str]] = {
    "import": "profile_import",
    "lint": "profile_lint",
    "new": "profile_new",
    "render": "profile",
    "rm": "profile_rm",
    "validate": "profile",
}
"""Modules below `appliance.cli.verbs` by action."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Run the action that the command line names; no other action's module is imported."""
    module = import_module(f"appliance.cli.verbs.{_MODULES[arguments.action]}")
    status: int = module.run(arguments, streams)
    return status

"""Verb `appliance apply`."""

from appliance.cli.apply_screen import apply_profiles
from appliance.cli.arguments import Arguments
from appliance.cli.terminal import Streams
from appliance.install.apply import ApplyOptions
from appliance.settings.loader import load_settings


def run(arguments: Arguments, streams: Streams) -> int:
    """Install units for the profiles, or print what would change."""
    options = ApplyOptions(
        dry_run=arguments.dry_run, adopt=arguments.adopt_changes, discard=arguments.discard
    )
    return apply_profiles(load_settings(), options, streams, as_json=arguments.json)

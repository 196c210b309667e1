"""`appliance apply`."""

from argparse import Namespace

from appliance.cli.terminal import Streams
from appliance.install.apply import ApplyOptions, run_apply
from appliance.settings import load_settings


def run(arguments: Namespace, streams: Streams) -> int:
    """Install units for the profiles, or say what would change."""
    options = ApplyOptions(
        dry_run=arguments.dry_run,
        adopt=arguments.adopt_changes,
        discard=arguments.discard,
        as_json=arguments.json,
    )
    return int(run_apply(load_settings(), options, out=streams.out.stream, err=streams.err.stream))

"""Verb `appliance profile rm`: remove files of profiles that neither run nor are committed, all or none."""

import os

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of, read_status
from appliance.cli.failures import CliError, need_root
from appliance.cli.terminal import Streams
from appliance.cli.verbs.edit import profile_path
from appliance.settings.loader import load_settings
from appliance.status.profile_verdict import removal_refusal
from appliance.system.files.durable import remove_files
from appliance.wire.control import Exit


def run(arguments: Arguments, streams: Streams) -> int:
    """Remove the files, and tell of which profiles units are left."""
    if not arguments.targets:
        raise CliError("profile rm wants a NAME: appliance profile --help", Exit.USAGE)
    if os.geteuid() != 0:
        raise need_root(f"profile rm {' '.join(arguments.targets)}")
    settings = load_settings()
    paths = {name: profile_path(settings, name) for name in arguments.targets}
    rows = {row["name"]: row for row in read_status(places_of(arguments))["profiles"]}
    applied = [name for name in paths if name in rows]
    refusals = [why for name in applied if (why := removal_refusal(rows[name])) is not None]
    if refusals:
        raise CliError("\n".join(refusals), Exit.FAILED)
    remove_files(paths.values())
    if arguments.json:
        removed = [str(path) for path in paths.values()]
        streams.out.document({"removed": removed, "still_applied": applied})
        return int(Exit.OK)
    for path in paths.values():
        streams.out.line(f"removed {path}")
    if applied:
        streams.out.line(f"{', '.join(applied)}: the unit goes with sudo appliance apply")
    return int(Exit.OK)

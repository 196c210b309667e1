"""Making of profiles by the command: what the machine has already, and files that replace nothing."""

import os
import pwd
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from appliance.cli.failures import CliError
from appliance.model.errors import ProfileError
from appliance.model.spec import Profile
from appliance.profiles.foreign.profile_draft import HostFacts
from appliance.settings.tables import Settings
from appliance.system.files.durable import is_there, write_files, write_new_files
from appliance.system.profile_files.loading import SUFFIX, load_profiles
from appliance.wire.control import Exit


def host_facts(settings: Settings, output: Path | None, *, replaced: str = "") -> HostFacts:
    """Return what a new profile has to respect: programs, homes, and what other profiles have.

    Args:
        settings: Settings of the box.
        output: Directory that gets the profile; None: none does. In the box's own a name that is taken is told.
        replaced: Name of the profile that the new one replaces; empty: it replaces none.
    """
    others = profiles_of(settings.profiles_dir)
    ports = {p.port: f"{n}{SUFFIX}" for n, p in others.items() if p.port and n != replaced}
    is_own = output is not None and output.resolve() == settings.profiles_dir
    return HostFacts(
        find_program=shutil.which,
        home_of=_home_of,
        taken_ports={**ports, **settings.reserved_ports},
        taken_names=frozenset() if is_own else frozenset(others),
    )


def profiles_of(directory: Path) -> Mapping[str, Profile]:
    """Return the valid profiles in a directory by name; none where it cannot be read."""
    try:
        return load_profiles(directory).profiles
    except ProfileError:
        return {}


def _home_of(user: str) -> str | None:
    name = user or os.environ.get("SUDO_USER", "")
    try:
        return (pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())).pw_dir
    except KeyError:
        return None


def written(texts: Mapping[str, str], directory: Path, *, force: bool) -> dict[str, Path]:
    """Write profiles, all or none of them.

    Args:
        texts: Texts of the profiles by name.
        directory: Directory that gets them.
        force: Whether they replace files that are there.

    Returns:
        Paths of the files by name.
    """
    if not directory.is_dir():
        raise CliError(f"{directory} is no directory: make it first", Exit.FAILED)
    paths = {name: path_in(directory, name) for name in texts}
    contents = {paths[name]: text for name, text in texts.items()}
    if force:
        write_files(contents)
        return paths
    refuse_existing(paths.values())
    write_new_files(contents)
    return paths


def path_in(directory: Path, name: str) -> Path:
    """Return the file of a profile in a directory."""
    return directory / f"{name}{SUFFIX}"


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise `CliError` where one of these files is there already."""
    there = [str(path) for path in paths if is_there(path)]
    if there:
        advice = "nothing was written; --force replaces it"
        raise CliError(f"{', '.join(there)} is there already: {advice}", Exit.CONFIG)

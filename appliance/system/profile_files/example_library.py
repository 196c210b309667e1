"""Library of examples: profiles that come with the appliance, of a release or of a checkout.

Names are listed without a parser, since a shell waits for them while it completes a word.
"""

from pathlib import Path
from typing import Final

import appliance
from appliance.model.errors import ProfileError, UnknownProfileError
from appliance.model.wording import closest, printable, short
from appliance.system.toml.file import FaultyFileError, decoded_text, read_content

_SUFFIX: Final = ".toml"
_PACKAGE: Final = Path(appliance.__file__).parent
_PLACES: Final = (_PACKAGE / "_installed" / "profiles", _PACKAGE.parent / "profiles")
"""Directories of the examples, in a release and in a checkout."""


def example_names() -> tuple[str, ...]:
    """Return the names of all examples, sorted."""
    return tuple(sorted(path.stem for path in _directory().glob(f"*{_SUFFIX}")))


def _directory() -> Path:
    return next((place for place in _PLACES if place.is_dir()), _PLACES[-1])


def example_text(name: str) -> str:
    """Return the text of an example, or of another profile's file where `name` is a path.

    Raises:
        UnknownProfileError: there is no such example.
        ProfileError: the file cannot be read.
    """
    path = Path(name)
    if "/" not in name and not name.endswith(_SUFFIX):
        names = example_names()
        if name not in names:
            meant = closest(name, names)
            hint = f' Did you mean "{meant}"?' if meant else ""
            raise UnknownProfileError(
                f'no example "{short(name)}".{hint} There are {", ".join(names)}'
            )
        path = _directory() / f"{name}{_SUFFIX}"
    try:
        return decoded_text(read_content(path))
    except FaultyFileError as error:
        raise ProfileError(f"{printable(name)}: {error}") from error

"""Model that a person names on a command line: the file or directory that a profile has to name."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.model.model_headers import Model, ModelFileFault, ModelReference, Unread
from appliance.system.model_files.bounded import HeaderError
from appliance.system.model_files.locate import PACKAGED, main_file

_LATER_SHARD: Final = re.compile(r"(.+)-\d{5}(-of-\d{5}\.gguf)\Z", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """Model with its headers."""

    model: str
    """Model as a profile names it: an absolute path, ``hf:owner/name``, or a packaged model."""
    found: Model | Unread


def named_model(
    text: str,
    path_of: Callable[[str], str | None],
    read: Callable[[ModelReference], Model | Unread],
) -> NamedModel:
    """Return the model that a text names, with its headers.

    A directory stands for its safetensors files, or for a GGUF file in it; of a file in parts any part stands for
    the first.

    Args:
        text: A path, ``hf:owner/name``, or the name of a packaged model.
        path_of: Returns the file or directory of a model as a profile names it; None: no file is named.
        read: Reads headers.
    """
    is_known = text == PACKAGED or path_of(text) is not None
    model = text if is_known else os.path.abspath(text)  # noqa: PTH100 - pathlib keeps ".."
    if model.startswith("/"):
        model = os.path.normpath(_LATER_SHARD.sub(r"\1-00001\2", model))
    path = path_of(model)
    found = read(ModelReference(model=model, path=path, gguf=False))
    if isinstance(found, Model):
        return NamedModel(model=model, found=found)
    in_gguf = read(ModelReference(model=model, path=path, gguf=True))
    if isinstance(in_gguf, Unread):
        is_better = (
            found.fault is not ModelFileFault.MISSING and in_gguf.fault is ModelFileFault.MISSING
        )
        return NamedModel(model=model, found=found if is_better else in_gguf)
    return NamedModel(model=_file_of(model, path), found=in_gguf)


def _file_of(model: str, path: str | None) -> str:
    """Return the GGUF file itself of a directory, which engines do not search."""
    if path is None or not model.startswith("/") or not Path(path).is_dir():
        return model
    try:
        return str(main_file(model, path, gguf=True))
    except (OSError, HeaderError):
        return model  # it went meanwhile: the start will tell

"""Presence of what a start needs: the files of the model, and the engine's program.

`appliance apply` and `appliance profile validate` warn by it, every preflight refuses by it. Nothing here
raises; what this process may not look at is unknown.
"""

import importlib.util
from pathlib import Path

from appliance.adapters.model_files.reading import ModelChecks
from appliance.domain.model_headers import ModelFileFault
from appliance.domain.profile import Applied
from appliance.engines import ENGINES
from appliance.planning.admission.findings import Presence
from appliance.planning.estimates.estimating import reference_of


def model_presence(applied: Applied, models: ModelChecks) -> tuple[Presence, str]:
    """Tell whether the model exists and, as far as its headers tell, is whole.

    Args:
        applied: The profile.
        models: Checks, which remember their results.

    Returns:
        A phrase beside it says how a model is damaged or incomplete; empty: it is not seen to be.
    """
    path = applied.model_path
    if path is None:
        return Presence.PRESENT, ""
    presence = _presence(path)
    reference = reference_of(applied.engine, applied.model, path)
    if presence is not Presence.PRESENT or reference is None:
        return presence, ""
    fault = models.fault(reference)
    if fault is None:
        return presence, ""
    damaged = fault.fault is ModelFileFault.DAMAGED
    return (Presence.DAMAGED if damaged else Presence.MISSING), fault.problem


def draft_presence(applied: Applied) -> Presence:
    """Tell whether the draft model exists, where the profile has one."""
    return Presence.PRESENT if applied.draft_path is None else _presence(applied.draft_path)


def missing_adapters(applied: Applied) -> tuple[str, ...]:
    """Return the names of the adapters that do not exist."""
    return tuple(a.name for a in applied.adapters if _presence(a.path) is Presence.MISSING)


def engine_presence(applied: Applied) -> Presence:
    """Tell whether the engine's program exists, and the Python package that it needs."""
    engine = ENGINES.get(applied.engine)  # None: a header of another release
    module = "" if engine is None else engine.needs_python_module
    if module and importlib.util.find_spec(module) is None:
        return Presence.MISSING
    return _presence(applied.binary)


def _presence(path: str) -> Presence:
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return Presence.MISSING
    except OSError:
        return Presence.UNKNOWN
    return Presence.PRESENT

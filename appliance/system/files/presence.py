"""Presence of what a start needs: the files of the model, and the engine's program.

`appliance apply` and `appliance profile validate` warn by it, every preflight refuses by it. Nothing here
raises; what this process may not look at is unknown.
"""

import asyncio
import importlib.util
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from appliance.engines import ENGINES
from appliance.model.model_headers import ModelFileFault
from appliance.model.profile import Applied
from appliance.profiles.estimates.estimating import reference_of
from appliance.switch.admission.findings import Presence
from appliance.system.model_files.reading import ModelChecks

_MOST_THREADS: Final = 4
_BY_FAULT: Final = {
    ModelFileFault.DAMAGED: Presence.DAMAGED,
    ModelFileFault.MISSING: Presence.MISSING,
    ModelFileFault.NOT_CHECKED: Presence.UNKNOWN,
}


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
    return _BY_FAULT[fault.fault], fault.problem


class ModelPresences:
    """Presence of models for a daemon: looked at in threads of its own, each model once at a time.

    Whoever supplies a model decides how long its headers are, and a file system may not answer at all: neither
    keeps a thread of another task, nor a caller for longer than a deadline.

    Args:
        look: Looks at one model; may take long.
        deadline_s: Time for it, after which the model is unknown; its own budget ends before that.
    """

    def __init__(
        self,
        look: Callable[[Applied, ModelChecks], tuple[Presence, str]] = model_presence,
        *,
        deadline_s: float = 8.0,
    ) -> None:
        self._look = look
        self._deadline_s = deadline_s
        self._models = ModelChecks()
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="model files")
        self._running: dict[Hashable, Future[tuple[Presence, str]]] = {}

    async def of(self, applied: Applied) -> tuple[Presence, str]:
        """Return what `model_presence` does; the model is unknown where that takes too long."""
        key = applied.engine, applied.model, applied.model_path
        running = self._running.get(key)
        if running is None:
            running = self._threads.submit(self._look, applied, self._models)
            self._running[key] = running
            running.add_done_callback(lambda _: self._running.pop(key, None))
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(asyncio.wrap_future(running))
        except TimeoutError:
            return Presence.UNKNOWN, f"its files were not read within {self._deadline_s:.0f} s"


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

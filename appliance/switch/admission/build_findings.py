"""Findings on options of a profile that the build of its engine does not have.

An engine ends at an option that it does not know, after the model before it was stopped. So a list of
options that is complete refuses; one that was read in sources only warns.
"""

from collections.abc import Iterator
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Engine
from appliance.model.engine_build import EngineBuild, Lack, lacks
from appliance.model.profile import Applied
from appliance.model.wording import closest, printable
from appliance.switch.admission.findings import PreflightFinding, fine, refuse, warn

_MOST_TOLD: Final = 5
_MOST_VALUES: Final = 12


def is_asked(applied: Applied) -> bool:
    """Tell whether the engine of a profile is one that is asked about its build."""
    engine = ENGINES.get(applied.engine)  # None: a manifest of another release
    return engine is not None and engine.build_question != ""


def build_findings(applied: Applied, build: EngineBuild | None) -> Iterator[PreflightFinding]:
    """Yield a finding on each option of `applied` that `build` lacks; none where it is not known."""
    if build is None:
        return
    if build.problem:
        text = f"the options of {applied.binary} are not known: {printable(build.problem)}"
        yield warn(text)
    elif build.version:
        yield fine(f"{applied.engine} {printable(build.version)}, {applied.binary}")
    finding = refuse if build.is_complete else warn
    found = lacks(applied.command, build)
    for lack in found[:_MOST_TOLD]:
        yield finding(_sentence(applied, build, lack))
    if len(found) > _MOST_TOLD:
        yield warn(f"{len(found) - _MOST_TOLD} further options are not in this build either")


def lacking_options(applied: Applied, build: EngineBuild) -> tuple[str, ...]:
    """Return the options of `applied` that `build` lacks, each with the value that it does not take."""
    return tuple(_shown(lack) for lack in lacks(applied.command, build))


def _sentence(applied: Applied, build: EngineBuild, lack: Lack) -> str:
    file = applied.source_path.rpartition("/")[2]
    engine = ENGINES.get(applied.engine)
    key = "extra_args" if engine is None else _key(engine, lack.option)
    program = f"{applied.binary} ({printable(build.version)})" if build.version else applied.binary
    verb = "does not have" if build.is_complete else "does not seem to have"
    if not key:
        text = (
            f"the appliance gives {_shown(lack)} to each {applied.engine}, which {program} {verb}"
        )
        return f"{text}{_hint(lack, build)}: install another build"
    text = f"{key} in {file} needs {_shown(lack)}, which {program} {verb}"
    return f"{text}{_hint(lack, build)}: install another build, or change {key}"


def unasked_sentence(applied: Applied, build: EngineBuild | None) -> str:
    """Return that the options of a profile were not compared with its program's; empty: they were.

    The program is asked in the sandbox of its unit: for that its profile has to be applied.
    """
    if build is not None or not is_asked(applied):
        return ""
    return (
        f"the options of {applied.binary} are not known yet, so none was checked:"
        f" sudo appliance apply, then appliance switch {applied.name} --dry-run"
    )


def _key(engine: Engine, option: str) -> str:
    """Return the key that an option is written from; empty: the appliance adds it, whatever the profile says."""
    if key := engine.option_table.keys.get(option):
        return key
    rules = engine.arguments
    return "" if rules is not None and rules.reason_against(option) else "extra_args"


def _shown(lack: Lack) -> str:
    return printable(f"{lack.option} {lack.value}".rstrip())


def _hint(lack: Lack, build: EngineBuild) -> str:
    if instead := build.removed.get(lack.option):
        return f" (its help says: {printable(instead)})"
    if lack.value:
        values = (build.options.get(lack.option) or ())[:_MOST_VALUES]
        return f" (it takes {', '.join(map(printable, values))})"
    near = closest(lack.option, build.options)
    return "" if near is None else f" (the nearest is {near})"

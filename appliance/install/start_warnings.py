"""Warnings about what would keep engines from starting, before anybody starts them."""

from collections.abc import Iterator
from pathlib import Path

from appliance.model.profile import Applied, Catalogue
from appliance.switch.admission.build_findings import build_findings
from appliance.switch.admission.engine_files import file_findings
from appliance.switch.admission.findings import Level, Presence, ProfileFacts
from appliance.system.build_records import CurrentBuilds
from appliance.system.files.access import read_access
from appliance.system.files.presence import (
    draft_presence,
    engine_presence,
    missing_adapters,
    model_presence,
)
from appliance.system.model_files.reading import ModelChecks, read_adapter_ranks


def start_warnings(catalogue: Catalogue, unit_dir: Path, builds: CurrentBuilds) -> Iterator[str]:
    """Yield a sentence for each file that an engine could not open now, and each option that it lacks.

    Args:
        catalogue: Profiles, compiled a moment ago.
        unit_dir: Directory of their units, which show some files to engines and hide others.
        builds: Builds of their engines.
    """
    models = ModelChecks()
    for name, applied in sorted(catalogue.items()):
        for finding in (
            *file_findings(applied, _file_facts(applied, models, unit_dir)),
            *build_findings(applied, builds.of(applied)),
        ):
            if finding.level is not Level.OK:
                yield f"{name}: {finding.text}"


def _file_facts(applied: Applied, models: ModelChecks, unit_dir: Path) -> ProfileFacts:
    # The headers of an estimated model were read and found whole when the profile was compiled.
    is_whole = applied.estimate is not None
    model, problem = (Presence.PRESENT, "") if is_whole else model_presence(applied, models)
    return ProfileFacts(
        model=model,
        model_problem=problem,
        draft=draft_presence(applied),
        missing_adapters=missing_adapters(applied),
        adapter_ranks=read_adapter_ranks([adapter.path for adapter in applied.adapters]),
        engine=engine_presence(applied),
        access=read_access(applied, unit_dir),
    )

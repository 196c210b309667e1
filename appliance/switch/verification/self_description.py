"""Description of an engine by itself, put together from its pages and its log."""

from collections.abc import Iterable, Sequence

from appliance.engines import ENGINES
from appliance.engines.shared.self_report import Reading, ReportPage
from appliance.model.profile import Applied
from appliance.model.running_facts import ReportedFact, SelfDescription
from appliance.switch.verification.declaration import patch_facts


def report_pages(engine: str) -> Sequence[ReportPage]:
    """Return the pages on which an engine describes itself; none of an unknown one."""
    known = ENGINES.get(engine)
    return () if known is None else known.self_report.pages


def page_description(page: ReportPage, text: str) -> SelfDescription:
    """Return what the text of a page tells."""
    return _sorted(page.read(text))


def log_description(applied: Applied, lines: Sequence[str]) -> SelfDescription:
    """Return what the first lines of the log of a profile's start tell."""
    known = ENGINES.get(applied.engine)
    told = SelfDescription() if known is None else _sorted(known.self_report.log(lines))
    return together((told, SelfDescription(facts=tuple(patch_facts(applied.declared, lines)))))


def together(several: Iterable[SelfDescription]) -> SelfDescription:
    """Return one description with all facts and faults of `several`."""
    known = tuple(several)
    return SelfDescription(
        facts=tuple(fact for one in known for fact in one.facts),
        faults=tuple(fault for one in known for fault in one.faults),
    )


def _sorted(readings: Iterable[Reading]) -> SelfDescription:
    facts, faults = list[ReportedFact](), list[str]()
    for reading in readings:
        if isinstance(reading, ReportedFact):
            facts.append(reading)
        else:
            faults.append(reading.text)
    return SelfDescription(facts=tuple(facts), faults=tuple(faults))

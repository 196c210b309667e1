"""Pages of metrics: GET /metrics, of the box, and GET /metrics/engine, the pages of its engines as one.

The box's page is in Prometheus's text format, or in OpenMetrics where the collector asks for it. In that of the engines each
series gets its profile as a label. A page is text of an engine, which may be wrong or hostile. It is read line by line, each by one expression
without choices to go back to, so that the time is linear in its length. What is not a line of the text format
is dropped, since one bad line makes a collector refuse the whole page; so is a series that was there already.
Values are passed as they stand. A label ``profile`` of the engine's becomes ``exported_profile``, as Prometheus
names it. Lines of one metric are put together, under one HELP and one TYPE: those of the first engine.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as MetricFamily
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

from appliance import __version__
from appliance.web.box_documents import STALE_S, BoxDocuments, BoxSource, Document, EnginePages
from appliance.web.metrics import table
from appliance.web.metrics.families import (
    MetricFamilies,
    add_box,
    add_gpus,
    add_health,
    add_traffic,
)
from appliance.web.metrics.table import ENGINE_LINES_DROPPED, ENGINE_PAGE, SOURCE_UP

DocumentT = TypeVar("DocumentT")


class _Fixed:
    """Collector of families that are made already."""

    def __init__(self, families: Sequence[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Sequence[MetricFamily]:
        return self._families


def render_box(
    box: BoxDocuments, counters: Document | None, accept: str | None
) -> tuple[str, bytes]:
    """Return the content type and the page.

    Args:
        box: Documents of the box.
        counters: The supervisor's answer to `counters`; None: it has none.
        accept: Header of the collector; None: it sent none.
    """
    return encode(box_families(box, counters), accept)


def encode(families: MetricFamilies, accept: str | None) -> tuple[str, bytes]:
    """Return the content type that a collector takes, and the families in it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(families.collect()))
    generate, content_type = choose_encoder(accept or "")
    return content_type, generate(registry)


def box_families(box: BoxDocuments, counters: Document | None) -> MetricFamilies:
    """Return the metrics of the box."""
    families = MetricFamilies()
    families.add(table.BUILD_INFO, 1, __version__)
    status = _fresh(box.status, box.status_age_s)
    speeds = _fresh(box.speeds, box.speeds_age_s)
    gpus = _fresh(box.gpus, box.gpus_age_s)
    for source, document in (("supervisor", status), ("health", speeds)):
        families.add(table.SOURCE_UP, document is not None, source)
    if status is not None:
        add_box(families, box.judged(status))
    if counters is not None:
        add_traffic(families, counters)
    if speeds is not None:
        add_health(families, speeds, box.unix_s - (box.speeds_age_s or 0.0))
    if gpus is not None:
        add_gpus(families, gpus)
    return families


def _fresh(document: DocumentT | None, age_s: float | None) -> DocumentT | None:
    return document if age_s is not None and age_s < STALE_S else None


MOST_LINE: Final = 16 << 10
"""Longest line in characters; a longer one is dropped."""
_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL: Final = r'[a-zA-Z_][a-zA-Z0-9_]*+[ \t]*+=[ \t]*+"(?:[^"\\\n]|\\[\\"n])*+"'
_SAMPLE: Final = re.compile(
    rf"({_NAME})[ \t]*+"
    rf"(?:\{{[ \t]*+((?:{_LABEL}[ \t]*+(?:,[ \t]*+|(?=\}})))*+)\}})?+[ \t]*+"
    r"([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[+-]?(?i:inf(?:inity)?)|(?i:nan))"
    r"(?:[ \t]++(-?[0-9]{1,18}+))?[ \t]*+"
)
_COMMENT: Final = re.compile(rf"#[ \t]++(HELP|TYPE)[ \t]++({_NAME})(?:[ \t]++(.*))?")
_LABELS: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+("(?:[^"\\\n]|\\[\\"n])*+")')
_TYPES: Final = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})
_ENDINGS: Final = ("_bucket", "_sum", "_count")
_WITH_ENDINGS: Final = frozenset({"histogram", "summary"})
_HELP_ESCAPES: Final = re.compile(r"\\(?![\\n])")


@dataclass(slots=True)
class _Family:
    """Lines of one metric."""

    help: str | None = None
    kind: str | None = None
    lines: list[str] = field(default_factory=list)


class MergedPages:
    """Pages of several engines as one."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._series: set[str] = set()
        self.dropped: dict[str, int] = {}
        """Number of lines that were dropped, by profile."""

    def add(self, profile: str, text: str) -> None:
        """Add the page of a profile, whose name needs no escape."""
        dropped = 0
        for line in lines_of(text):
            stripped = line.strip(" \t\r")
            if stripped.startswith("#"):
                self._add_comment(stripped)
            elif stripped and not self._add_sample(profile, stripped):
                dropped += 1
        self.dropped[profile] = dropped

    def render(self) -> str:
        """Return the page."""
        return "".join(line for name, one in self._families.items() for line in _lines(name, one))

    def _add_comment(self, line: str) -> None:
        found = _COMMENT.fullmatch(line) if len(line) <= MOST_LINE else None
        if found is None:
            return
        word, name, rest = found[1], found[2], found[3] or ""
        family = self._families.setdefault(name, _Family())
        if word == "HELP" and family.help is None:
            family.help = _HELP_ESCAPES.sub(r"\\\\", rest)
        elif word == "TYPE" and family.kind is None and rest in _TYPES and not family.lines:
            family.kind = rest

    def _add_sample(self, profile: str, line: str) -> bool:
        """Add a line; False: it is dropped."""
        found = _SAMPLE.fullmatch(line) if len(line) <= MOST_LINE else None
        if found is None:
            return False
        name, text, value, time = found.groups()
        labels = _labels(profile, text or "")
        if labels is None:
            return False
        series = f"{name}{{{labels}}}"
        if series in self._series:
            return False
        self._series.add(series)
        stamp = f" {time}" if time else ""
        self._family_of(name).lines.append(f"{series} {value}{stamp}\n")
        return True

    def _family_of(self, name: str) -> _Family:
        for ending in _ENDINGS:
            family = self._families.get(name.removesuffix(ending))
            if name.endswith(ending) and family is not None and family.kind in _WITH_ENDINGS:
                return family
        return self._families.setdefault(name, _Family())


def _labels(profile: str, text: str) -> str | None:
    """Return the labels of a series with its profile; None: a name comes twice, or is a reserved one."""
    labels = {"profile": f'"{profile}"'}
    for found in _LABELS.finditer(text):
        name = "exported_profile" if found[1] == "profile" else found[1]
        if name in labels or name.startswith("__"):
            return None
        labels[name] = found[2]
    return ",".join(f"{name}={value}" for name, value in labels.items())


def merge(pages: Mapping[str, str]) -> MergedPages:
    """Return the pages of profiles, merged."""
    merged = MergedPages()
    for profile, text in pages.items():
        merged.add(profile, text)
    return merged


def lines_of(text: str) -> Iterator[str]:
    """Iterate over the lines of a page, which end with a newline and nothing else."""
    begin = 0
    while (end := text.find("\n", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1
    if begin < len(text):
        yield text[begin:]


def _lines(name: str, family: _Family) -> Iterable[str]:
    if not family.lines:
        return
    if family.help is not None:
        yield f"# HELP {name} {family.help}\n"
    if family.kind is not None:
        yield f"# TYPE {name} {family.kind}\n"
    yield from family.lines


_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_PAGES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}


def metrics_router(box: BoxSource) -> APIRouter:
    """Return the router of the metrics.

    Args:
        box: Where the documents come from.
    """
    router = APIRouter(tags=["metrics"], default_response_class=Response)

    @router.get("/metrics", responses=_PAGES)
    async def metrics(request: Request) -> Response:
        """Return the metrics of the box, for Prometheus: see docs/reference/metrics.md."""
        documents, counters = await asyncio.gather(box.look(), box.counters())
        accept = request.headers.get("accept")
        content_type, page = await asyncio.to_thread(render_box, documents, counters, accept)
        return Response(page, headers={"Content-Type": content_type})

    @router.get("/metrics/engine", responses=_PAGES)
    async def engine_metrics() -> Response:
        """Return the engines' own metrics, each series with its profile as a label."""
        pages = await box.engine_pages()
        page = await asyncio.to_thread(render_engines, pages)
        return Response(page, headers={"Content-Type": _TEXT})

    return router


def render_engines(pages: EnginePages | None) -> bytes:
    """Return the page of the engines; None: the supervisor does not answer."""
    families = MetricFamilies()
    families.add(SOURCE_UP, pages is not None, "supervisor")
    if pages is None:
        return encode(families, None)[1]
    merged = merge(pages.texts)
    for profile, state in sorted(pages.states.items()):
        families.add(ENGINE_PAGE, 1, profile, state)
        families.add(ENGINE_LINES_DROPPED, merged.dropped.get(profile), profile)
    return encode(families, None)[1] + merged.render().encode(errors="replace")

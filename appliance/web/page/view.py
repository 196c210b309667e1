"""View of the box: everything that the page shows, in text, apart from HTML; its documents and its renderer.

Templates have every value escaped.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final, Protocol

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from appliance.model.amounts import age
from appliance.model.measurements import Probe, rate_of
from appliance.model.status import RecordedOperation, StatusDocument
from appliance.model.words import Mark, Series
from appliance.presentation.alert_texts import delivery_line
from appliance.presentation.box_texts import (
    gateway_lines,
    header,
    operation_lines,
    run_lines,
    unread_lines,
    watch_lines,
)
from appliance.presentation.clock_times import local_minute, utc_second
from appliance.presentation.health_sections import alert_section, speed_section, without_speeds
from appliance.presentation.speed_history import SpeedHistory, history_in
from appliance.presentation.status_markdown import markdown_lines
from appliance.status.speed_figures import rate_text
from appliance.web.box_documents import BoxDocuments, Document
from appliance.web.page.ansi_text import TextSpan, log_view
from appliance.web.page.cards import (
    AlertsView,
    MemoryBar,
    OperationView,
    ProfileCard,
    RequestsView,
    TrafficCard,
    alerts_view,
    memory_bars,
    operation_view,
    profile_cards,
    requests_view,
    traffic_cards,
)
from appliance.web.page.charts import ChartMark, RateChart, StateBar, rate_chart, state_bars
from appliance.wire.json_values import number_in


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusDocuments:
    """Documents about the one profile that the page shows in detail. None: no answer in time."""

    name: str
    since_unix_s: float
    """Beginning of the history that was asked for."""
    history: Document | None = None
    """Answer of the health agent to `history`."""
    probes: tuple[Probe, ...] | None = None
    """Last probes, the newest first."""
    log: tuple[str, ...] | None = None
    """Last lines of the engine's log, oldest first; None too where the reader may not see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDocuments:
    """Documents of one moment."""

    box: BoxDocuments
    focus: FocusDocuments | None = None
    """None: there is no profile."""
    operations: tuple[RecordedOperation, ...] = ()
    """Operations that ended lately."""
    states: Document | None = None
    """Record of the profiles' states; None: not known."""
    requests: Document | None = None
    """Requests of clients in flight and held; None: not known."""


class FocusSource(Protocol):
    """Source of the documents about one profile, and of the operations on record."""

    async def operations(self) -> tuple[RecordedOperation, ...]:
        """Return the operations that ended lately; none where the supervisor does not answer."""
        ...

    async def states(self) -> Document | None:
        """Return the record of the profiles' states; None: the health agent does not answer."""
        ...

    async def requests(self) -> Document | None:
        """Return the requests of clients in flight and held; None: the gateway does not answer."""
        ...

    async def look_at(self, name: str, *, with_log: bool) -> FocusDocuments:
        """Return the documents of a profile that is applied; what no daemon answers is None.

        Args:
            name: Of the profile.
            with_log: Whether the log of its engine is read; else it is None.
        """
        ...


STALE_S: Final = 5.0
"""Age from which a document is told as old: while its daemon answers, none is older than two seconds."""
_VERDICTS: Final = {"serving": "serving", "degraded": "degraded", "nothing": "nothing serves"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeLine:
    """One probe."""

    when: str
    prompt: str
    outcome: str
    rate: str
    """Steps of decoding a second; empty: nothing was measured."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusView:
    """The profile that is shown in detail."""

    name: str
    charts: tuple[RateChart, ...]
    chart_note: str
    """Reason why there is no chart; empty: there is one."""
    probes: tuple[ProbeLine, ...]
    log: tuple[tuple[TextSpan, ...], ...]
    log_note: str
    """Reason why there is no log; empty: there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """The page."""

    host: str
    state: str
    """Verdict, or ``unknown``; a class of the style sheet too."""
    state_text: str
    head: str
    disconnected: str
    """Sentence such as ``disconnected 40 s``; empty: the supervisor answers."""
    age_s: float
    """Age of the status document, for the script."""
    reasons: tuple[str, ...] = ()
    operation: OperationView | None = None
    active: tuple[ProfileCard, ...] = ()
    memory: tuple[MemoryBar, ...] = ()
    alerts: AlertsView
    profiles: tuple[ProfileCard, ...] = ()
    traffic: tuple[TrafficCard, ...] = ()
    requests: RequestsView = field(default_factory=RequestsView)
    states: tuple[StateBar, ...] = ()
    notes: tuple[str, ...] = ()
    focus: FocusView | None = None
    footer: tuple[str, ...] = ()
    markdown: str = ""


def page_view(documents: PageDocuments) -> PageView:
    """Return the view of the documents."""
    box = documents.box
    now = box.unix_s
    if box.status is None:
        return PageView(
            host="",
            state="unknown",
            state_text="the supervisor does not answer",
            head="",
            disconnected="disconnected: sudo systemctl start appliance-supervisor",
            age_s=0.0,
            alerts=alerts_view(alert_section(box.speeds or {}), now=now),
        )
    status = status_document(box, box.status)
    verdict = status.verdict
    profiles = profile_cards(status, now=now)
    focus = documents.focus
    return PageView(
        host=status.host,
        state=verdict.state,
        state_text=_VERDICTS.get(verdict.state, verdict.state),
        head=header(status),
        disconnected=_disconnected(box),
        age_s=round(box.status_age_s or 0.0, 1),
        reasons=tuple(verdict.why),
        operation=None if status.operation is None else operation_view(status.operation),
        active=tuple(card for card in profiles if card.runs),
        memory=memory_bars(status.memory, box.gpus),
        alerts=alerts_view(status.alerts or None, now=now),
        profiles=profiles,
        traffic=traffic_cards(status),
        requests=requests_view(documents.requests),
        states=state_bars(status.profiles, documents.operations, documents.states, now=now),
        notes=tuple(_notes(status, now)),
        focus=None if focus is None else _focus_view(focus, documents.operations, now),
        footer=tuple(_footer(status, box)),
        markdown="\n".join(markdown_lines(status, now=now)),
    )


def status_document(box: BoxDocuments, status: StatusDocument) -> StatusDocument:
    """Return the status document with the sections that the health agent adds, as the command has it."""
    speeds = box.speeds
    if speeds is None or (box.speeds_age_s or 0.0) > STALE_S:
        speed = without_speeds("speed not known: systemctl status appliance-health")
    else:
        speed = speed_section(speeds)
    return box.judged(status.replaced(speed=speed))


def _disconnected(box: BoxDocuments) -> str:
    age_s = box.status_age_s or 0.0
    return f"disconnected {age(age_s)}" if age_s > STALE_S else ""


def _notes(status: StatusDocument, now: float) -> Iterable[str]:
    yield from run_lines(status, now)
    if status.operation is None:
        yield from operation_lines(status)
    yield from unread_lines(status)
    yield from gateway_lines(status)
    yield from watch_lines(status)


def _footer(status: StatusDocument, box: BoxDocuments) -> Iterable[str]:
    if status.alerts:
        yield delivery_line(status.alerts.delivery)
    if (box.speeds_age_s or 0.0) > STALE_S:
        yield f"health agent silent for {age(box.speeds_age_s or 0.0)}"
    reports = status.speed.profiles.values() if status.speed else ()
    probed = [number_in(report, "last_probe_unix_s") for report in reports]
    if last := max((unix_s for unix_s in probed if unix_s is not None), default=None):
        yield f"last probe {age(box.unix_s - last)} ago"
    yield f"as of {utc_second(box.unix_s - (box.status_age_s or 0.0))}"


def _focus_view(
    focus: FocusDocuments, operations: Iterable[RecordedOperation], now: float
) -> FocusView:
    history = None
    if focus.history is not None:
        history = history_in(focus.name, focus.since_unix_s, focus.history)
    charts = () if history is None else tuple(_charts(history, operations, now))
    return FocusView(
        name=focus.name,
        charts=charts,
        chart_note="" if charts else _chart_note(focus),
        probes=tuple(_probe_line(probe) for probe in focus.probes or ()),
        log=log_view(focus.log or ()),
        log_note=_log_note(focus),
    )


def _log_note(focus: FocusDocuments) -> str:
    if focus.log is None:
        return f"Shown to operators who have signed in: appliance logs {focus.name}"
    return "" if focus.log else f"No lines: appliance logs {focus.name}"


def _chart_note(focus: FocusDocuments) -> str:
    if focus.history is None:
        return "Not known: the health agent does not answer."
    if any(probe.raw is not None for probe in focus.probes or ()):
        return "The chart of the first probes comes within half a minute."
    return f"No valid probe in the last days: appliance probe {focus.name}"


def _charts(
    history: SpeedHistory, operations: Iterable[RecordedOperation], now: float
) -> Iterable[RateChart]:
    switches = list(_switch_marks(operations))
    for series in history.rows:
        changes = [
            ChartMark(
                unix_s=event.unix_s,
                kind="change",
                text=f"{local_minute(event.unix_s)} {event.text or event.kind.replace('-', ' ')}",
            )
            for event in history.events
            if event.series in {series, None}
        ]
        chart = rate_chart(history, series, [*changes, *switches], now=now)
        if chart is not None:
            yield chart


def _switch_marks(operations: Iterable[RecordedOperation]) -> Iterable[ChartMark]:
    for operation in operations:
        ended = operation.finished_unix_s
        if ended is not None and operation.kind == "switch":
            text = f"{local_minute(ended)} switch {operation.outcome or ''}: {operation.message}"
            yield ChartMark(unix_s=ended, kind="switch", text=text)


def _probe_line(probe: Probe) -> ProbeLine:
    rate = None if probe.raw is None else rate_of(Series.DECODE, probe.raw)
    return ProbeLine(
        when=local_minute(probe.began_unix_s),
        prompt=probe.prompt,
        outcome=probe.outcome.replace("-", " "),
        rate="" if rate is None else rate_text(rate),
        detail=probe.detail,
    )


_TEMPLATES: Final = files("appliance.web.page") / "templates"
_STATIC: Final = files("appliance.web.page") / "static"
STATIC_TYPES: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "manifest.webmanifest": "application/manifest+json",
}
"""Files that are served, with their types: no other name is looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorView:
    """Person that looks at the page."""

    name: str = ""
    """Operator that has signed in; empty: nobody has, and the page shows no forms."""
    csrf: str = ""
    """Token of the session for its forms."""
    login_path: str = ""
    """Address of the form to sign in; empty: nobody can."""
    logout_path: str = ""
    ask_path: str = ""
    """Address of the form for a prompt; empty: none can be tried."""


class PageRenderer:
    """Renderer with its templates compiled once."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FunctionLoader(_template),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals["macros"] = self._environment.get_template("macros.html").module
        self._login = self._environment.get_template("login.html")
        self._answer = self._environment.get_template("answer.html")
        self._page = self._environment.get_template("page.html")

    def page(self, view: PageView, operator: OperatorView, *, notice: str = "") -> str:
        """Return the page as HTML.

        Args:
            view: What it shows.
            operator: Who looks at it.
            notice: Sentence about the last form; empty: none.
        """
        return self._page.render(
            view=view,
            operator=operator,
            notice=notice,
            marks=tuple(Mark),
            csrf=lambda: _hidden(operator),
        )

    def login(self, notice: str) -> str:
        """Return the form to sign in; `notice`: sentence about the last try, or empty."""
        return self._login.render(notice=notice)

    def answer(self, answer: str, fault: str) -> str:
        """Return the page of an answer to a prompt; `fault`: why it is not whole, or empty."""
        return self._answer.render(answer=answer, fault=fault)


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


def _hidden(operator: OperatorView) -> Markup:
    """Return the field of a form that proves that the form is ours."""
    return Markup('<input type="hidden" name="csrf" value="{}">').format(operator.csrf)


def static_file(name: str) -> tuple[bytes, str] | None:
    """Return a file of the page and its type; None: there is none of that name."""
    kind = STATIC_TYPES.get(name)
    return None if kind is None else ((_STATIC / name).read_bytes(), kind)

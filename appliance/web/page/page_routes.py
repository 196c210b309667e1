"""Routes of the page: the page itself, its files, and the status as Markdown."""

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from appliance.presentation.box_texts import by_interest
from appliance.web.actions import BoxActions, PromptTrials
from appliance.web.box_documents import BoxDocuments, BoxSource
from appliance.web.page.form_routes import PAGE, SignedIn, form_router, operator_view
from appliance.web.page.page_documents import FocusSource, PageDocuments
from appliance.web.page.page_renderer import PageRenderer, static_file
from appliance.web.page.page_view import page_view, status_document
from appliance.web.page.prompt_routes import ASK, prompt_router

_LONGEST_NAME: Final = 64
_CACHED_S: Final = 3600


def page_router(
    box: BoxSource,
    focus: FocusSource,
    actions: BoxActions,
    signed_in: SignedIn,
    trials: PromptTrials | None,
) -> APIRouter:
    """Return the router of the page.

    Args:
        box: Where the documents come from.
        focus: Where those about the one profile come from that is shown in detail.
        actions: Carry out what operators ask for.
        signed_in: Has the sessions of the browsers.
        trials: Ask models the prompts that operators try; None: none can be tried.
    """
    renderer = PageRenderer()
    router = form_router(actions, signed_in, renderer)
    if trials is not None:
        router.include_router(prompt_router(trials, actions, signed_in, renderer))

    @router.get(PAGE)
    async def page(
        request: Request,
        profile: Annotated[str, Query(max_length=_LONGEST_NAME)] = "",
    ) -> HTMLResponse:
        documents = await box.look(for_person=True)
        session = signed_in.session(request)
        operator = operator_view(session, ask_path="" if trials is None else ASK)
        name = focus_name(documents, profile)
        found = PageDocuments(box=documents)
        if name is not None:
            found = await _whole(documents, name, focus, with_log=bool(operator.name))
        view = page_view(found)
        notice = "" if session is None else session.take_notice()
        html = renderer.page(view, operator, notice=notice)
        return HTMLResponse(html, headers={"Cache-Control": "no-store"})

    @router.get("/status.md")
    async def markdown() -> PlainTextResponse:
        documents = await box.look()
        text = page_view(PageDocuments(box=documents)).markdown
        if not text:
            raise HTTPException(503)
        return PlainTextResponse(
            text + "\n",
            media_type="text/markdown; charset=utf-8",
            headers={"Cache-Control": "no-store"},
        )

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        found = static_file(name)
        if found is None:
            raise HTTPException(404)
        body, kind = found
        return Response(
            body, media_type=kind, headers={"Cache-Control": f"max-age={_CACHED_S}, private"}
        )

    return router


async def _whole(
    documents: BoxDocuments, name: str, focus: FocusSource, *, with_log: bool
) -> PageDocuments:
    """Return the documents of a page that shows one profile in detail; the daemons are asked at once."""
    detail, ended, requests, states = await asyncio.gather(
        focus.look_at(name, with_log=with_log),
        focus.operations(),
        focus.requests(),
        focus.states(),
    )
    return PageDocuments(
        box=documents, focus=detail, operations=ended, requests=requests, states=states
    )


def focus_name(documents: BoxDocuments, wanted: str) -> str | None:
    """Return the profile to show in detail: the wanted one, else the one of most interest; None: there is none."""
    if documents.status is None:
        return None
    names = [row.name for row in by_interest(status_document(documents, documents.status).profiles)]
    return wanted if wanted in names else next(iter(names), None)

"""Renderer of the page: templates with every value escaped, and files that the page asks for."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from appliance.model.words import Mark
from appliance.web.page.page_view import PageView

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

"""Settings ``[alerts]`` and ``[[watch]]``: when people are told, and what is watched besides the models."""

import re
from typing import Annotated, Final, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from appliance.model.names import is_profile_name
from appliance.model.value_types import TypeName, shown
from appliance.model.words import Mark
from appliance.system.toml.tables import Duration, Rules, wrong

_SPAN: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d\Z")
_MOST_URL: Final = 1024
_UNIT_SUFFIXES: Final = (".service", ".socket", ".target", ".timer", ".mount")


def _span(text: str) -> str:
    if text and _SPAN.match(text) is None:
        raise wrong(f"{shown(text)} is not a span of local time such as 22:00-07:00")
    return text


def _zone(text: str) -> str:
    try:
        if text:
            ZoneInfo(text)
    except (LookupError, OSError, ValueError) as error:
        raise wrong(f"{shown(text)} is not a time zone such as Europe/Rome") from error
    return text


def _name(text: str) -> str:
    if not is_profile_name(text):
        raise wrong(f"{shown(text)} is not a name of small letters, digits, dots and dashes")
    return text


def _url(text: str) -> str:
    if not _is_address(text):
        raise wrong(f"{shown(text)} is not a URL such as https://box.example:8443/health")
    if "@" in urlsplit(text).netloc:
        raise wrong("holds a user or a password: an address that is watched takes no credential")
    return text


def _is_address(text: str) -> bool:
    """Tell whether a text is an HTTP address in printable ASCII."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    return usable and text.isascii() and text.isprintable() and " " not in text


def _unit(text: str) -> str:
    if not text.endswith(_UNIT_SUFFIXES) or "/" in text:
        raise wrong(f'{shown(text)} is not the name of a unit, such as "vllm.service"')
    return text


def _url_or_none(text: str) -> str:
    return _url(text) if text else text


Url = Annotated[str, Field(max_length=_MOST_URL), AfterValidator(_url), TypeName("URL")]
UrlOrEmpty = Annotated[
    str, Field(max_length=_MOST_URL), AfterValidator(_url_or_none), TypeName("URL")
]


class AlertSettings(BaseModel):
    """``[alerts]``: when people are told what is wrong."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(
        default=True,
        description="whether targets are told; false: alerts are kept and shown, and nobody is told",
    )
    time_zone: Annotated[str, AfterValidator(_zone), TypeName("time zone")] = Field(
        default="",
        description='zone of quiet hours and planned windows, such as "Europe/Rome"; empty: the box\'s',
    )
    quiet_hours: Annotated[str, AfterValidator(_span), TypeName("span of local time")] = Field(
        default="",
        description='span of local time, such as "22:00-07:00", in which warnings wait for one digest '
        "at its end; critical alerts are told at once; empty: none",
    )
    box_silent_after: Annotated[Duration, Field(ge=120, le=3600)] = Field(
        default=300.0,
        description="time after which a target that keeps scheduled messages tells that the box is "
        "silent; a planned shutdown extends it",
    )
    reboot_takes: Annotated[Duration, Field(ge=60, le=7200)] = Field(
        default=900.0, description="time by which a planned shutdown extends `box_silent_after`"
    )
    button_url: UrlOrEmpty = Field(
        default="",
        description="address of this box that the phone reaches, for the buttons of messages; empty: "
        "messages have none",
    )


class WatchSettings(BaseModel):
    """``[[watch]]``: a service that is watched besides the models, on this box or another."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, AfterValidator(_name), TypeName("name")] = Field(
        description="name of the entry, which no profile has"
    )
    url: Url | None = Field(
        default=None, description="address that answers with a status of 200 to 299; this or `unit`"
    )
    unit: Annotated[str, AfterValidator(_unit), TypeName("unit")] | None = Field(
        default=None, description="unit of this box that is active; this or `url`"
    )
    mark: Annotated[Mark, Rules(Mark)] = Field(
        default=Mark.LIVE,
        description="mark at first; `appliance mark` changes it, and the file no longer does",
    )
    every: Annotated[Duration, Field(ge=10, le=3600)] = Field(
        default=30.0, description="time between two looks"
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.url is None) == (self.unit is None):
            raise wrong("a watch has either a url or a unit")
        return self

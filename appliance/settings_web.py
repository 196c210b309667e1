"""Settings ``[web]``: address and limits of the status API, its metrics and its page."""

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from appliance.adapters.toml.tables import Duration, wrong
from appliance.domain.value_types import TypeName, shown
from appliance.settings_gateway import Names, no_doubles, place, split_list

_MOST_ADDRESSES = 8


def _address(text: str) -> str:
    """Return an address in its shortest form; unlike the gateway's, no interface is meant."""
    try:
        ip_address(text)
    except ValueError as error:
        raise wrong(f"{shown(text)} is not an address") from error
    return place(text)


Addresses = Annotated[
    list[Annotated[str, AfterValidator(_address), TypeName("address")]],
    NoDecode,
    BeforeValidator(split_list),
    Field(min_length=1, max_length=_MOST_ADDRESSES),
    AfterValidator(no_doubles),
]


class WebSettings(BaseModel):
    """``[web]``: address and limits of the status API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(
        default=True,
        description="whether API, metrics and page answer; false: every request is refused",
    )
    listen: Addresses = Field(
        default=["127.0.0.1"],
        description="addresses that `appliance-web.socket` listens on; one that other machines reach is refused",
    )
    names: Names = Field(
        default=[],
        description="further host names of this machine by which browsers and programs may ask, such as "
        "that of a VPN; others are refused",
    )
    idle: Annotated[Duration, Field(ge=10, le=86_400)] = Field(
        default=300.0, description="time without a client after which the process leaves"
    )

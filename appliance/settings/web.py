"""Settings ``[web]``: addresses, names and limits of the status API, its metrics and its page."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from appliance.model.gateway import LOOPBACK_ADDRESSES
from appliance.settings.network import Addresses, Names
from appliance.system.toml.tables import Duration


class WebSettings(BaseModel):
    """``[web]``: addresses, names and limits of the status API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(
        default=True,
        description="whether API, metrics and page answer; false: every request is refused",
    )
    listen: Addresses = Field(
        default=[*LOOPBACK_ADDRESSES],
        description="addresses to listen on, in force after `appliance apply`; other machines need an"
        " operator's token for whatever they ask",
    )
    names: Names = Field(
        default=[],
        description="further host names of this machine by which browsers and programs may ask, such as "
        "that of a VPN; others are refused",
    )
    idle: Annotated[Duration, Field(ge=10, le=86_400)] = Field(
        default=300.0, description="time without a client after which the process leaves"
    )

"""Client of check.sock, for the health agent: checks of the URLs that are watched."""

import logging
from pathlib import Path
from typing import Final

from appliance.model.errors import ApplianceError
from appliance.wire.async_client import details_of
from appliance.wire.helpers import CHECK, CheckResult, CheckUrlRequest, decode_check

_log = logging.getLogger(__name__)

_MORE_S: Final = 2.0
"""Time that an answer may take beyond that of the check, such as the checker's start."""


class CheckClient:
    """Client of the checker.

    Args:
        path: Of check.sock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trouble = ""

    async def check(self, url: str, timeout_s: float) -> CheckResult | None:
        """GET a URL once; None: the checker does not answer, so nothing is known of the URL.

        Args:
            url: Of http or https, without a user.
            timeout_s: Time for the answer, at most 60 s.
        """
        request = CheckUrlRequest(url, timeout_s)
        try:
            details = await details_of(CHECK, self._path, request, within_s=timeout_s + _MORE_S)
            result = decode_check(details)
        except (ApplianceError, ValueError) as error:
            if str(error) != self._trouble:
                _log.warning("watched addresses are not checked: %s", error)
            self._trouble = str(error)
            return None
        self._trouble = ""
        return result

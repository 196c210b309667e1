"""Client of root's program that queues starts and stops of units (launch.jobs)."""

import asyncio
from pathlib import Path
from typing import Final

from appliance.system.systemd.bus import CallError
from appliance.wire.jobs import FAILED, MAX_LINE_BYTES, JobRefusedError, parse_answer

_TIMEOUT_S: Final = 25.0


class JobQueue:
    """Client on the socket of appliance-jobs.service."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def queue(self, verb: str, unit: str) -> str:
        """Queue a job; returns its object path.

        Args:
            verb: START or STOP of `appliance.wire.jobs`.
            unit: The unit's name.

        Raises:
            CallError: the job was refused, or the socket does not answer.
            TimeoutError: systemd does not answer.
        """
        async with asyncio.timeout(_TIMEOUT_S):
            try:
                line = await self._exchange(f"{verb} {unit}\n")
            except OSError as error:
                text = f"{self._path}: {error.strerror or error}: systemctl status appliance-jobs"
                raise CallError(FAILED, text) from error
        try:
            return parse_answer(line)
        except JobRefusedError as error:
            raise CallError(error.name, str(error)) from error

    async def _exchange(self, line: str) -> str:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=MAX_LINE_BYTES)
        try:
            writer.write(line.encode())
            await writer.drain()
            try:
                return (await reader.readline()).decode(errors="replace")
            except ValueError:
                return ""
        finally:
            writer.close()

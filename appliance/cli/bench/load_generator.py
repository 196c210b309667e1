"""Load generator: sends the requests of a bench through the gateway, and keeps a row of each."""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from appliance.model.profile import Applied
from appliance.speed.bench_plan import FEWEST_TOKENS, Stage, stage_prompt, stage_request
from appliance.speed.bench_rows import Part, RequestRow, ResponseObserver
from appliance.system.front_client import FrontClient

_TIMEOUT_S: Final = 3600.0
"""Time for one response: 8192 tokens at the rate of a slow processor."""
_SALT_BYTES: Final = 8
_ANSWERS_SALT: Final = "0" * 2 * _SALT_BYTES
"""Salt of greedy requests, whose answers are compared: the same for each profile."""
_SHORTER: Final = 0.97
_MOST_REFUSED: Final = 4
_CLOSE_ENOUGH: Final = 0.02
"""Share by which a long prompt may miss its length before the next one is corrected."""

Report = Callable[[Stage, Sequence[RequestRow]], None]
"""Taker of a stage and its rows so far, called at its beginning and after each request."""


class LoadGenerator:
    """Generator of the load of one block.

    Args:
        client: Client of the gateway.
        applied: The profile.
        began_s: Beginning of the bench by the loop's clock, which the rows' times count from.
        report: Told of each stage that begins and of each request that has ended.
        timeout_s: Time for one response.
    """

    def __init__(
        self,
        client: FrontClient,
        applied: Applied,
        *,
        began_s: float,
        report: Report,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self.rows: list[RequestRow] = []
        """Every request that has ended."""
        self.answers: dict[str, str] = {}
        """Greedy answers by the name of their prompt."""
        self._client = client
        self._applied = applied
        self._began_s = began_s
        self._report = report
        self._timeout_s = timeout_s
        self._most_tokens: int | None = None
        """Longest answer that the engine lets a request ask for; None: it has refused none."""
        self._tokens_scale = 1.0
        self._refused = 0
        """Long prompts that the engine has refused, for being longer than its context perhaps."""

    async def run(self, stages: Sequence[Stage], headers: Mapping[str, str]) -> None:
        """Send the requests of the stages, one stage after another.

        Args:
            stages: The stages.
            headers: Headers of each request.
        """
        for stage in stages:
            rows: list[RequestRow] = []
            self._report(stage, rows)
            numbers = iter(range(len(stage.prompts)))
            async with asyncio.TaskGroup() as group:
                for _ in range(stage.concurrency):
                    group.create_task(self._work(stage, numbers, headers, rows))

    async def _work(
        self,
        stage: Stage,
        numbers: Iterator[int],
        headers: Mapping[str, str],
        rows: list[RequestRow],
    ) -> None:
        """Send one request after another, as long as the stage has any that is not sent."""
        for number in numbers:
            row = await self._send(stage, number, headers)
            self.rows.append(row)
            rows.append(row)
            self._report(stage, rows)

    async def _send(self, stage: Stage, number: int, headers: Mapping[str, str]) -> RequestRow:
        """Send one request; while the engine refuses its length, a shorter one in its place."""
        while True:
            tokens = min(stage.tokens, self._most_tokens or stage.tokens)
            row, status = await self._try(stage, number, headers, tokens)
            if status != HTTPStatus.BAD_REQUEST or not self._shorten(stage, tokens):
                return row

    def _shorten(self, stage: Stage, tokens: int) -> bool:
        """Make the next requests shorter; False: that is no use, or not wanted."""
        if stage.depth:
            self._refused += 1
            self._tokens_scale *= _SHORTER
            return self._refused <= _MOST_REFUSED
        if stage.exact or tokens // 2 < FEWEST_TOKENS:
            return False
        self._most_tokens = min(tokens // 2, self._most_tokens or tokens)
        return True

    async def _try(
        self, stage: Stage, number: int, headers: Mapping[str, str], tokens: int
    ) -> tuple[RequestRow, int | None]:
        is_answer = stage.part is Part.ANSWERS
        salt = _ANSWERS_SALT if is_answer else secrets.token_hex(_SALT_BYTES)
        prompt = stage_prompt(stage, number, salt, tokens_scale=self._tokens_scale)
        path, body = stage_request(self._applied, stage, prompt, salt, tokens=tokens)
        name = stage.prompts[number]
        observer = ResponseObserver(
            RequestRow(
                profile=self._applied.name,
                part=stage.part,
                run=stage.run,
                concurrency=stage.concurrency,
                prompt=name,
                depth=stage.depth,
                sent_s=0.0,
                ended_s=0.0,
            ),
            keep_text=is_answer,
        )
        end = await self._client.post(
            path, body, observer.feed, timeout_s=self._timeout_s, headers=headers
        )
        row = observer.row(sent_s=end.sent_s, ended_s=end.ended_s, fault=end.fault)
        if is_answer:
            self.answers[name] = "" if row.error else observer.text
        if stage.depth and not row.error and row.input_tokens:
            self._correct_length((stage.depth - stage.tokens) / row.input_tokens)
        return row.after(self._began_s), end.status

    def _correct_length(self, factor: float) -> None:
        """Make the next long prompt so much longer, unless the last one was close enough."""
        if abs(factor - 1) > _CLOSE_ENOUGH:
            self._tokens_scale *= factor

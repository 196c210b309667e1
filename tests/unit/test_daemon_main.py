"""Life of a daemon: its settings, its signals and its exit status."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from appliance.daemon_main import ToldToEndError, daemon_tasks, run_daemon, until_told
from appliance.model.errors import SettingsError, StoreError, UnitError
from appliance.settings.tables import Settings
from appliance.system.systemd.daemon import Readiness


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """The log's handlers as they were: a daemon sets those of its process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_daemon_gets_the_settings_and_ends_well() -> None:
    """The daemon runs with the settings that were read; its end is status 0."""
    seen: list[Settings] = []

    async def daemon(settings: Settings) -> None:
        seen.append(settings)

    assert run_daemon(daemon, Settings) == 0
    assert seen == [Settings()]


def test_a_daemon_waits_for_settings_that_it_can_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line has the journal's prefix of an error, once; with the file corrected the daemon runs."""
    problems = ["a.toml:1: one\na.toml:2: two", "a.toml:1: one\na.toml:2: two", "a.toml:2: two"]
    waited: list[str] = []
    ran: list[Settings] = []

    def read() -> Settings:
        if len(waited) < len(problems):
            raise SettingsError(problems[len(waited)])
        return Settings()

    async def daemon(settings: Settings) -> None:
        ran.append(settings)

    assert run_daemon(daemon, read, waited.append) == 0
    assert waited == problems
    assert ran == [Settings()]
    told = "<3>a.toml:1: one\n<3>a.toml:2: two\n<3>a.toml:2: two\n"
    assert capsys.readouterr().err == told


def test_a_daemon_that_cannot_go_on_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """Every error in a group has its line, and the status is 1."""

    async def daemon(_settings: Settings) -> None:
        inner = ExceptionGroup("inner", [StoreError("no disk")])
        raise ExceptionGroup("outer", [UnitError("no bus"), inner])

    assert run_daemon(daemon, Settings) == 1
    assert [record.message for record in caplog.records] == ["no bus", "no disk"]


def test_an_end_that_is_cut_short_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A wait that is cancelled under a daemon that ends calls nobody: the status is 0, and the log says so."""

    async def daemon(_settings: Settings) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ended())
        except* ToldToEndError:
            pass
        finally:
            reply = asyncio.get_running_loop().create_future()
            reply.cancel()
            await reply

    async def ended() -> None:
        raise ToldToEndError

    assert run_daemon(daemon, Settings) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "with others"])
def test_a_timeout_of_the_clean_up_is_a_timeout(
    others: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A clean-up waits in vain where the bus or the notifier is restarted too, as at a rollback; it goes on to its end."""
    steps: list[str] = []

    async def ended() -> None:
        await asyncio.sleep(0)
        raise ToldToEndError

    async def daemon(_settings: Settings) -> None:
        try:
            async with daemon_tasks() as tasks:
                tasks.create_task(ended())
                for _ in range(others):
                    tasks.create_task(asyncio.Event().wait())
        except* ToldToEndError:
            steps.append("told")
        finally:
            try:
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            except TimeoutError:
                steps.append("timeout")
            steps.append("closed")

    assert run_daemon(daemon, Settings) == 0
    assert steps == ["told", "timeout", "closed"]
    assert caplog.records == []


async def told(number: int, on_reload: Callable[[], None] | None = None) -> bool:
    """Return whether a signal ends the wait."""
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(until_told(Readiness(), on_reload))
    try:
        await asyncio.sleep(0)
        os.kill(os.getpid(), number)
        # real time: a signal that must not end it has had its turn of the loop by then
        done, _ = await asyncio.wait([waiting], timeout=0.05 if on_reload else 10)
        return bool(done) and isinstance(waiting.exception(), ToldToEndError)
    finally:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(each)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_daemon(number: int) -> None:
    """SIGTERM and SIGINT end the task group of a daemon."""
    assert await told(number)


async def test_a_reload_ends_nothing() -> None:
    """SIGHUP calls what the daemon does then, and goes on."""
    seen: list[str] = []
    assert not await told(signal.SIGHUP, lambda: seen.append("reload"))
    assert seen == ["reload"]

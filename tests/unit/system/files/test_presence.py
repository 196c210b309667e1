"""Models that a daemon looks at: once at a time, in threads of its own, and not for long."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from appliance.model.profile import Applied
from appliance.switch.admission.findings import Presence
from appliance.system.files.presence import ModelPresences
from appliance.system.model_files.reading import ModelChecks
from tests.fakes.profiles import applied


class SlowModels:
    """Models whose files answer when they are allowed to."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.looks: list[str] = []

    def look(self, profile: Applied, _models: ModelChecks) -> tuple[Presence, str]:
        self.looks.append(profile.model)
        if profile.model != "quick":
            self.answer.wait()
        return Presence.PRESENT, ""


@pytest.fixture
def slow() -> Iterator[SlowModels]:
    models = SlowModels()
    yield models
    models.answer.set()


def model(name: str, profile: str = "one") -> Applied:
    return replace(applied(profile, "gpu-all"), model=name, model_path=f"/models/{name}")


async def test_a_model_is_looked_at_once_at_a_time(slow: SlowModels) -> None:
    """Profiles of one model, asked together, share one look; later ones have another."""
    presences = ModelPresences(slow.look)
    asked = [asyncio.create_task(presences.of(model("m", name))) for name in ("one", "two")]
    while not slow.looks:
        await asyncio.sleep(0)
    slow.answer.set()
    assert await asyncio.gather(*asked) == [(Presence.PRESENT, "")] * 2
    assert slow.looks == ["m"]
    await presences.of(model("m"))
    assert slow.looks == ["m", "m"]


async def test_a_slow_model_is_unknown_and_keeps_nobody(slow: SlowModels) -> None:
    """A model that takes too long is not checked, while another is; who gives up leaves the look to others."""
    presences = ModelPresences(slow.look, deadline_s=0.05)
    patient = ModelPresences(slow.look)
    assert await presences.of(model("m")) == (
        Presence.UNKNOWN,
        "its files were not read within 0 s",
    )
    assert await presences.of(model("quick")) == (Presence.PRESENT, "")
    leaving, staying = (asyncio.create_task(patient.of(model("n"))) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    slow.answer.set()
    assert await staying == (Presence.PRESENT, "")

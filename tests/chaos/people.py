"""People's acts meanwhile: random verbs of the command line, and systemctl by hand."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.chaos.scenario import MODELS
from tests.chaos.world import World

Act = Callable[[World], str]


def switch(world: World, *options: str) -> str:
    """A switch to any of the models, also to the one that serves."""
    world.may_be_stopped |= "--no-rollback" in options
    return _ask(world, "switch", world.rng.choice(sorted(MODELS)), *options)


def _named(world: World, verb: str) -> str:
    world.may_be_stopped |= verb != "start"
    return _ask(world, verb, world.rng.choice(sorted(MODELS)))


def _bare(world: World, *words: str) -> str:
    world.may_be_stopped |= words[0] in {"stop", "restart", "cancel", "hold"}
    world.may_be_held |= words[0] == "hold"
    return _ask(world, *words)


def _by_hand(world: World, *words: str) -> str:
    world.may_be_held = world.may_be_stopped = True
    world.run("systemctl", "--no-block", *words)
    return f"systemctl {' '.join(words)}"


def _ask(world: World, *words: str) -> str:
    world.clients.ask(world.boots, *words)
    return f"appliance {' '.join(words)}"


ACTS: Final[Mapping[str, tuple[float, Act]]] = {
    "switch": (8.0, switch),
    "switch --no-rollback": (0.7, lambda world: switch(world, "--no-rollback")),
    "start": (0.7, lambda world: _bare(world, "start")),
    "start NAME": (1.0, lambda world: _named(world, "start")),
    "stop": (0.6, lambda world: _bare(world, "stop")),
    "stop NAME": (0.6, lambda world: _named(world, "stop")),
    "restart": (1.0, lambda world: _bare(world, "restart")),
    "hold": (0.4, lambda world: _bare(world, "hold")),
    "hold --for": (0.5, lambda world: _bare(world, "hold", "--for", "3s")),
    "cancel": (1.2, lambda world: _bare(world, "cancel")),
    "hold by hand": (0.3, lambda world: _by_hand(world, "start", "appliance-hold.service")),
}
"""Weight and function by name."""


def act(world: World) -> str:
    """One of them; what it was."""
    names = list(ACTS)
    name = world.rng.choices(names, [ACTS[n][0] for n in names])[0]
    return ACTS[name][1](world)

"""Engine for any program that serves HTTP on a port or socket given in its arguments."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from appliance.engines.shared import llama_cpp_report
from appliance.engines.shared import refused_arguments as why
from appliance.engines.shared.engine import Engine, Probing, exact_length, options_of
from appliance.engines.shared.invocation import LOOPBACK, Invocation, InvocationContext, environment
from appliance.model.spec import EngineOptions, Problem, Profile, SamplingTable
from appliance.model.value_types import Command, Doc, TypeName, matching

_PLACEHOLDER: Final = re.compile(r"\{(port|socket|host|model|ctx)\}")
_ANYWHERE: Final = re.compile(r"(?<![\d.])0\.0\.0\.0(?![\d.])|\[::\]|\A::\Z|=::\Z")
_HOST_OPTIONS: Final = frozenset({"--host", "--hostname", "--listen", "--bind", "--address", "-H"})
_LOCAL: Final = frozenset({LOOPBACK, "localhost", "::1", "[::1]", "{host}", "{socket}"})
_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("--api-key", "--api-token", "--token", "--password"), why.KEY),
    **dict.fromkeys(("--api-prefix", "--fastapi-root-path", "--root-path"), why.PREFIX),
}


_HealthPath = Annotated[
    str,
    matching(r"/[A-Za-z0-9._~/%?&=-]{0,255}", "a path such as /health"),
    TypeName("URL path"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions(EngineOptions):
    """``[command]``: any program that serves HTTP."""

    argv: Annotated[
        Command,
        Doc(
            "the program by absolute path, and its arguments; `{port}`, `{socket}`, "
            "`{host}`, `{model}` and, where `ctx` is set, `{ctx}` are replaced"
        ),
    ]
    """Program and arguments; braces around other words are kept."""
    health: Annotated[_HealthPath, Doc("path that answers 200 once a request can be served")] = (
        "/health"
    )


def _invocation(profile: Profile, context: InvocationContext) -> Invocation:
    options = options_of(CommandOptions, profile)
    values = _values(profile)
    argv = (_PLACEHOLDER.sub(lambda m: values.get(m[1], m[0]), word) for word in options.argv)
    return Invocation(
        argv=tuple(argv),
        environment=environment(profile, context),
        health_path=options.health,
    )


def _values(profile: Profile) -> Mapping[str, str]:
    port, socket = profile.endpoint.port, profile.endpoint.socket
    return {
        **({} if profile.ctx is None else {"ctx": str(profile.ctx)}),
        "host": LOOPBACK,
        "model": profile.model,
        "port": "" if port is None else str(port),
        "socket": socket or "",
    }


def _problems(profile: Profile) -> Iterator[Problem]:
    yield from _argv_problems(profile)
    yield from _common_problems(profile)


def _argv_problems(profile: Profile) -> Iterator[Problem]:
    options = options_of(CommandOptions, profile)
    text = " ".join(options.argv)
    wanted = "port" if profile.endpoint.socket is None else "socket"
    other = "socket" if wanted == "port" else "port"
    if f"{{{wanted}}}" not in text:
        missing = f"no {{{wanted}}} in argv: the program would not know where to listen"
        yield Problem(where=("command", "argv"), text=missing)
    if f"{{{other}}}" in text:
        unset = f"argv names {{{other}}}, the profile sets {wanted}"
        yield Problem(where=("command", "argv"), text=unset)
    if "{model}" in text and not profile.model:
        yield Problem(where=("command", "argv"), text="argv names {model}: set the key model")
    for place, word in enumerate(options.argv):
        following = options.argv[place + 1] if place + 1 < len(options.argv) else ""
        if reason := _refusal(word, following):
            yield Problem(where=("command", "argv", place), text=reason)


def _refusal(word: str, following: str) -> str | None:
    option, given, value = word.partition("=")
    address = value if given else following
    if _ANYWHERE.search(word):
        return f'"{word}" is refused: {why.HOST}'
    if option in _HOST_OPTIONS and address.rpartition(":{port}")[0] not in _LOCAL:
        if address in _LOCAL:
            return None
        return f'"{option} {address}" is refused: {why.HOST}; write {{host}}'
    reason = _REFUSED.get(option.replace("_", "-"))
    return None if reason is None else f'"{option}" is refused: {reason}'


_UNUSED: Final = ("kv", "thinking", "tool_parser", "speculative", "parallel")


def _common_problems(profile: Profile) -> Iterator[Problem]:
    for key in _UNUSED:
        if getattr(profile, key) is not None:
            text = f"a command says this itself: remove {key}, and put it into argv"
            yield Problem(where=(key,), text=text)
    if profile.sampling != SamplingTable():
        text = "a command says this itself: remove sampling, and put it into argv"
        yield Problem(where=("sampling",), text=text)
    if profile.adapters:
        text = "a command says this itself: put it into argv, and what clients ask for into served"
        yield Problem(where=("adapters",), text=text)
    if profile.binary:
        yield Problem(where=("binary",), text="the program is the first of argv: remove binary")
    if profile.extra_args:
        yield Problem(where=("extra_args",), text="put them into argv: remove extra_args")


def _exact_length(output_tokens: int, salt: str) -> Mapping[str, object]:
    """Return the parameters of all engines: the program may be any, and most ignore unknown ones."""
    return {**exact_length(output_tokens, salt), "cache_prompt": False}


ENGINE: Final = Engine(
    port_reuse=(),
    name="command",
    options=CommandOptions,
    invocation=_invocation,
    problems=_problems,
    needs_binary=False,
    arguments_name_files=False,
    needs_model=False,
    probing=Probing(parameters=_exact_length, timings=llama_cpp_report.timings_in),
)

"""What must hold within one profile, beyond the types of its values."""

import re
from collections.abc import Iterator
from typing import Final

from appliance import engines
from appliance.domain.problems import Problem
from appliance.domain.spec import CommandOptions, Profile
from appliance.engines.refused_arguments import variable_problems
from appliance.engines.rendering import HF_SCHEME
from appliance.engines.tasks import task_problems
from appliance.engines.xllamacpp import PACKAGED_MODEL
from appliance.planning.profiles.request_handling import handling_problems
from appliance.planning.units.override_values import is_data_path, is_foreign_unit
from appliance.planning.units.overrides import refusal

_HF: Final = re.compile(r"hf:[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?\Z", re.ASCII)
_EMBEDDED: Final = "xllamacpp"


def problems(profile: Profile) -> tuple[Problem, ...]:
    """Everything that is wrong with `profile`; empty when it can be applied."""
    return (
        *_endpoint(profile),
        *_model(profile),
        *_binary(profile),
        *_need(profile),
        *_order(profile),
        *_patch(profile),
        *handling_problems(profile),
        *_overrides(profile),
        *variable_problems(profile),
        *engines.problems(profile),
        *task_problems(profile),
    )


def _endpoint(profile: Profile) -> Iterator[Problem]:
    port, socket = profile.endpoint.port, profile.endpoint.socket
    if port is None and socket is None:
        yield Problem(where=(), text="port or socket is missing: say where the backend listens")
    if port is not None and socket is not None:
        yield Problem(where=("socket",), text="port and socket exclude each other: keep one")


def _model(profile: Profile) -> Iterator[Problem]:
    model, embedded = profile.model, profile.engine == _EMBEDDED
    if not model:
        if not isinstance(profile.options, CommandOptions):
            yield Problem(where=(), text='"model" is missing: a path, or hf:owner/name')
    elif model.startswith(HF_SCHEME):
        if _HF.match(model) is None:
            text = f'"{model}" is not of the form hf:owner/name'
            yield Problem(where=("model",), text=text)
        elif embedded:
            yield Problem(where=("model",), text="the embedded engine wants the path of a file")
    elif not model.startswith("/") and not (embedded and model == PACKAGED_MODEL):
        text = f'"{model}" is neither an absolute path nor hf:owner/name'
        hint = f' nor "{PACKAGED_MODEL}"' if embedded else ""
        yield Problem(where=("model",), text=text + hint)


def _binary(profile: Profile) -> Iterator[Problem]:
    brings_its_own = profile.engine == _EMBEDDED or isinstance(profile.options, CommandOptions)
    if not profile.binary and not brings_its_own:
        text = f'"binary" is missing: the absolute path of the {profile.engine} program'
        yield Problem(where=(), text=text)


def _need(profile: Profile) -> Iterator[Problem]:
    if profile.gpus == () and profile.need.vram_bytes:
        text = "this profile claims no GPU: remove need.vram, or set gpus"
        yield Problem(where=("need", "vram"), text=text)
    if profile.gpus == () and profile.assume_free:
        text = "this profile claims no GPU: remove need.assume_free, or set gpus"
        yield Problem(where=("need", "assume_free"), text=text)


def _order(profile: Profile) -> Iterator[Problem]:
    for place, unit in enumerate(profile.order.after):
        where = ("order", "after", place)
        if unit.startswith("appliance-"):
            text = f'"{unit}": the order among the appliance\'s own units is fixed'
            yield Problem(where=where, text=text)
        elif not is_foreign_unit(unit):
            text = (
                f'"{unit}" is not a unit that a model may wait for, such as network-online.target'
            )
            yield Problem(where=where, text=text)


def _patch(profile: Profile) -> Iterator[Problem]:
    for place, path in enumerate(profile.patch.writable if profile.patch else ()):
        if not is_data_path(path):
            text = (
                f'"{path}" is a directory of the system or the appliance, or a whole home: '
                "a patch may change a copy of its own, such as /opt/engine"
            )
            yield Problem(where=("patch", "writable", place), text=text)


def _overrides(profile: Profile) -> Iterator[Problem]:
    for override in profile.unit:
        if reason := refusal(override):
            yield Problem(where=("unit", override.section, override.key), text=reason)

"""Generator of the files that are written from the code: ``python -m appliance.install.reference``.

Generated are the references of settings, of profiles and of traps, and the admin paths of all engines.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from appliance.engines import ENGINES
from appliance.model.value_types import TypeName
from appliance.profiles.linting.prevented_traps import PREVENTED
from appliance.profiles.linting.trap import ANY_ENGINE, Trap
from appliance.profiles.linting.traps import RETIRED, TRAPS
from appliance.settings.schema import ENVIRONMENT_PREFIX, Settings
from appliance.switch.units.overrides import ADDED, ALLOWED
from appliance.system.profile_files.schema import profile_file
from appliance.system.toml.faults import table_model
from appliance.system.toml.tables import Rules, validated

_PAGE: Final = """\
# Traps

{note}

A trap is a setting, or two together, with which an engine starts and is then slow, wrong or short of memory, often without a
word. `appliance profile lint` tells them for each profile, with the key to change, the source and the day on which the source was last
looked at. `appliance profile validate` and `appliance apply` warn of them, and refuse nothing because of them.

```console
$ appliance profile lint gemma
gemma.toml: 1 trap
  asymmetric-kv: attention with keys and values of different types runs on the CPU in a usual CUDA build, and prompts take 8 to 45 times as long
    here: keys are q8_0, values q4_0
    change kv: use one type for both, or a build with GGML_CUDA_FA_ALL_QUANTS
    source: llama.cpp issues #24485, #27109, #28455 (ggml-cuda/fattn.cu) (checked 2026-11-25)
```

**Builds.** A trap that only some builds have is not told of a build that is known to be another one. The engine's program is asked about
its build at the first `appliance switch`. Before that, such a trap is told with its builds.

**GPUs.** Some traps depend on the GPUs: their compute capability, their memory, their NVLinks, their number. The GPUs are read once, if a
profile has something that would be a trap on some of them. Where they cannot be read, `lint` says which traps it has not checked, and
`validate` and `apply` are silent about those.

**Models.** What depends on the model is read in the headers of its files. A model that is not there has no such traps.

**On purpose.** A profile names in `allow_traps` what is meant to be so:

```toml
allow_traps = ["asymmetric-kv"]     # a build with all kernels
```

A name that is no trap is an error with the nearest name. A trap that is gone from this page, because no build in use has it any
more, leaves its name valid: the profile is told to remove it.

`lint` ends with 0 without traps, with 1 where a profile has one that it does not allow, with 78 where a file is wrong.

## Traps that are told

| Trap | Engines | What goes wrong | What to do | Source |
| --- | --- | --- | --- | --- |
{rows}
## Traps that the appliance makes impossible

No profile can have these, whatever it says. A test compares each row with the command or the unit that is made of a profile.

| What goes wrong | What prevents it | Source |
| --- | --- | --- |
{prevented}{retired}"""
_RETIRED: Final = """
## Traps that are gone

| Trap | Why |
| --- | --- |
{rows}"""


def traps_page(note: str) -> str:
    """Return the text of docs/reference/traps.md.

    Args:
        note: Comment that says what the file is made from.
    """
    gone = [_cells(f"`{name}`", reason) for name, reason in RETIRED.items()]
    return _PAGE.format(
        note=note,
        rows="".join(_trap_row(trap) for trap in sorted(TRAPS, key=lambda trap: trap.name)),
        prevented="".join(_cells(t.statement, t.prevented_by, t.source) for t in PREVENTED),
        retired=_RETIRED.format(rows="".join(gone)) if gone else "",
    )


def _trap_row(trap: Trap) -> str:
    keys = ", ".join(f"`{key}`" for key in trap.keys)
    limits = "" if trap.builds.text == "all builds" else f"; {trap.builds.text}"
    gpus = "; depends on GPUs" if trap.on_gpus else ""
    return _cells(
        f"`{trap.name}`",
        f"{_engines(trap)}{limits}{gpus}",
        trap.statement,
        f"{keys}: {trap.advice}",
        f"{trap.source}; checked {trap.checked}",
    )


def _engines(trap: Trap) -> str:
    if trap.options == ANY_ENGINE:
        return "any"
    return ", ".join(e.name for e in ENGINES.values() if issubclass(e.options, trap.options))


def _cells(*cells: str) -> str:
    return f"| {' | '.join(_escaped(cells))} |\n"


def _escaped(cells: Iterable[str]) -> Iterable[str]:
    return (cell.replace("|", "\\|") for cell in cells)


_NOTE: Final = (
    "<!-- Generated by python -m appliance.install.reference: change the models instead. -->"
)
_PLAIN: Final[Mapping[Any, str]] = {
    bool: "true or false",
    float: "number",
    int: "whole number",
    str: "text",
}

_SETTINGS: Final = """\
# Settings

{note}

`/etc/appliance/appliance.toml`, one key a line; every key may be missing, and so may the file.
A variable wins over the file: `{prefix}` and the key in capitals, and for a key of a table two
underscores between them. `APPLIANCE_SETTINGS` names another file. `appliance config show` prints
the settings in force, `appliance config validate` their errors. An unknown key is an error, and so is a
variable that looks like a misspelt setting.

Durations are text such as `"90s"`, `"5m"`, `"1h30m"` or `"250ms"`, or a number of seconds. Sizes are
text with a unit: `"18.6GiB"`, `"512MiB"`, `"20GB"`.

The static units have the default paths of the control socket and the directories. To move one of
them, also give `appliance-supervisor.socket` and the other static units a drop-in with the new path.

{tables}"""

_PROFILES: Final = """\
# Profiles

{note}

A profile is a file `/etc/appliance/profiles/NAME.toml`: one model, and how to serve it. NAME is
up to 48 of `a-z`, `0-9`, dot, dash and underscore. After a change, `sudo appliance apply`.

A bad file gives one error with file, line, key and a suggestion for each of its mistakes,
and never affects the other files. Unknown keys are errors. A file has at most 256 KiB of UTF-8.

Two profiles may share a port when their claims intersect, since they can never run together.
Otherwise both are refused, as is a profile on a port of the gateway or the status API.

The appliance always sets the host (loopback), the port, metrics on, offline mode and no CORS, and turns off
automatic fitting of context and layers. So these are refused in `extra_args` and `[env]`: another
address or path prefix, port reuse, keys on a command line, files of options, tools and other
listeners, other machines, logs or files of prompts, endpoints that change a running server,
`LLAMA_ARG_*` variables, and options that a key of the profile writes. Every spelling that
the engine takes for such an option counts: abbreviations, `--a_b`, `--a.key=value`, `-n2`, `--no-a`. The first item of
`extra_args` has to be an option.

Text is one line without control characters. `%` and `$` are plain characters everywhere, except in
`[unit]`, whose values systemd interprets.

Durations are text such as `"90s"` or `"5m"`, or a number of seconds; sizes are text with a unit,
such as `"18.6GiB"`.

## The profile itself

{top}

{tables}
## [unit]

A few settings of the generated unit may be changed, in one of three spellings:

```toml
[unit]
Service.Nice = 5
"Service.CPUWeight" = "50"

[unit.Unit]
Documentation = ["man:llama-server(1)", "file:/models/README"]
```

A value is text, a number, true or false, or a list of these, which repeats the key. It replaces
the appliance's own value, or joins it where the table says so. It is read as systemd reads it, but
has no quotes (except in the arguments of a command), no variables and no `%` specifiers beyond those
shown, and is never empty: an empty value would remove what the unit needs.

| Key | Value | |
| --- | --- | --- |
{overrides}
Every other key is refused, with the place to set it: another key of the profile, `[env]`,
`[deadlines]`, `[patch]`, or the settings. Root can set any other key in a drop-in for all
backends, `/etc/systemd/system/appliance-backend-.service.d/NAME.conf`. Such a drop-in can break the promises
of one owner, loopback only, never root, readiness and a complete stop; root is responsible for it.

## What the keys become

- `ctx` is what *one* request may use. llama-server divides its context among its slots, so it is
  given `ctx` times `parallel`; with `kv_unified` the requests share `ctx` tokens.
- `served` may hold patterns such as `claude-*`. An engine is given the plain names only, or the
  profile's name when there is none. A request keeps a plain name; one for a pattern, the profile's name or
  `default` is for the first. So a `command` has to know its plain names: write `gpt-4o*` for one that it does not. With
  `[gateway] keep_names` names that a pattern matches are kept, too.
- `adapters` are `--enable-lora` and `--lora-modules` for vLLM, `--lora-paths` for SGLang, which a request reaches as
  `model:adapter`: the gateway writes that. The highest `rank`, of the profile or of the adapter's file, is
  `--max-lora-rank`, the next that vLLM has; a switch is refused where an adapter's file has a higher one. `--max-loras` and
  the like go into `extra_args`. llama.cpp's servers have no names for adapters: `lora` in their tables is for every request.
- `kv = "f16"` and `"bf16"` are `float16` and `bfloat16` for vLLM, which takes the one that the model runs in: `dtype` has to
  say it too. `"auto"` is what the checkpoint says, and may be FP8. SGLang has no `f16`.
- `thinking` is `--reasoning` for llama-server, and `enable_thinking` in `--default-chat-template-kwargs` for vLLM and
  SGLang. A budget is `--reasoning-budget` for llama-server. vLLM and SGLang take one from requests alone, so the gateway
  sets it in each, and removes a client's own; both need a `reasoning_parser`. they have a budget for chats and completions
  only, not for Anthropic's messages and OpenAI's responses.
- `speculative` names methods by one word for all engines, or by the engine's own. `mtp`, `eagle3`, `dflash`, `dspark` and
  `draft` (a small model of the same kind) are common to all but the embedded engine. llama-server also takes `ngram-simple`,
  `ngram-mod`, `ngram-map-k`, `ngram-map-k4v`, `ngram-cache` and lists such as `["mtp", "ngram-mod"]`, vLLM `eagle`, `ngram`,
  `ngram_gpu` and `suffix`, SGLang `eagle`, `standalone` and `ngram`. What drafts with a model of its own needs `model`.
- With `thinking = "off"` the gateway also removes request parameters that would turn thinking on again:
  `reasoning_effort`, `reasoning_budget_tokens`, `chat_template_kwargs.enable_thinking` and their
  like, apart from what `[gateway] set` sets. A client that writes the prompt or the beginning of
  the answer itself (raw completions, a last message that the model continues) can still begin
  a thought there.
- `tool_parser` adds `--enable-auto-tool-choice` for vLLM, without which a parser does nothing.
  llama-server reads tool calls by the model's template; the key is refused.
- `cpus = "0,2,4-9"` is written as the mask `3F5`.
- `cpu_experts = "26-29"` is a tensor override, because `--n-cpu-moe` can only take the first layers.
- Engines rename options. `appliance switch` asks a llama-server once after each change of its file
  which options it has, and its unit takes the spelling that this build knows: `mlock` is
  `--load-mode mmap+mlock`, or `--mlock` of builds before July 2026. An option of the profile that
  the build does not have is told before anything stops. Builds from before July 2026 have no
  options for CORS, which stays as open as they have it; builds from before December 2025, without
  `--fit`, cannot be run.
- SGLang answers any origin, and no option changes that; only loopback protects it.
- `gpus = [0]` sets `CUDA_VISIBLE_DEVICES`, numbered as NVML does; `gpus = []` hides every GPU.
- `hf:owner/name` is looked up in the cache of the setting `hf_home`, with every download switched
  off. llama-server also takes `hf:owner/name:QUANT`.
"""


def settings_page() -> str:
    """Return the text of docs/reference/settings.md."""
    tables = [_table(Settings, variables=ENVIRONMENT_PREFIX)]
    for name, model in _inner(Settings):
        if get_origin(Settings.model_fields[name].annotation) is list:
            tables.append(f"\n## [[{name}]]\n\n{_table(model)}")
            continue
        prefix = f"{ENVIRONMENT_PREFIX}{name.upper()}__"
        tables.append(f"\n## [{name}]\n\n{_table(model, variables=prefix)}")
    return _SETTINGS.format(note=_NOTE, prefix=ENVIRONMENT_PREFIX, tables="".join(tables))


def profiles_page() -> str:
    """Return the text of docs/reference/profiles.md."""
    tables = [
        f"## {_title(name, model)}\n\n{_table(model)}\n" for name, model in _all(profile_file())
    ]
    return _PROFILES.format(
        note=_NOTE, top=_table(profile_file()), tables="".join(tables), overrides=_override_rows()
    )


def _override_rows() -> str:
    """Return the table of the keys of [unit]."""
    return "".join(
        f"| `{name}` | {form.text} | {'joins' if name in ADDED else ''} |\n"
        for name, form in ALLOWED.items()
    )


def _title(name: str, model: type[BaseModel]) -> str:
    """Return ``[vllm]``, or the first line of the model's docstring when that tells more."""
    text = cleandoc(model.__doc__ or "").replace("``", "`").rstrip(".")
    return text if f"{name} = " in text else text.replace(f"`[{name}]`", f"[{name}]")


def _inner(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        if inner := table_model(field.annotation):
            yield field.alias or name, inner


def _all(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Return the tables in a model, and those in them, each before its own."""
    for name, inner in _inner(model):
        yield name, inner
        yield from _all(inner)


def _table(model: type[BaseModel], variables: str | None = None) -> str:
    heads = ["Key", "Value", "Default", "Meaning"]
    rows = [_row(name, field, variables) for name, field in model.model_fields.items()]
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _row(name: str, field: FieldInfo, variables: str | None) -> list[str]:
    key = f"`{field.alias or name}`"
    if variables is not None and not table_model(field.annotation):
        key += f"<br>`{variables}{name.upper()}`"
    is_list = get_origin(field.annotation) is list
    kind = "list of tables" if is_list else "table"
    if not table_model(field.annotation):
        kind = _kind(field.annotation, field.metadata)
    return [key, kind, _default(field), (field.description or "").replace("|", "\\|")]


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ((), [], {}, "") or isinstance(value, BaseModel):
        return ""
    return _written(value, _kind(field.annotation, field.metadata))


def _written(value: Any, kind: str) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and kind == "size":
        return f'`"{value >> 20}MiB"`'
    if isinstance(value, int | float):
        return f"`{value:g}`" + (" s" if kind == "duration" else "")
    if isinstance(value, list):
        return "`[" + ", ".join(f'"{item}"' for item in value) + "]`"
    return f'`"{value}"`'


def _kind(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return the kind of values of a key, in words."""
    if named := [m.name for m in metadata if isinstance(m, TypeName)]:
        return named[-1]
    if shared := [m.of for m in metadata if isinstance(m, Rules)]:
        return _kind(validated(shared[-1]))
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Annotated:
            text = _kind(arguments[0], (*arguments[1:], *metadata))
        case origin if origin in {Union, UnionType}:
            text = " or ".join(_kind(a, metadata) for a in arguments if a is not NoneType)
        case origin if origin is Literal:
            text = ", ".join(f'`"{a}"`' for a in arguments)
        case origin if origin is list:
            text = f"list of {_kind(arguments[0])}"
        case origin if origin is dict:
            text = "table of text"
        case _:
            text = _PLAIN.get(annotation, "text") + _bounds(metadata)
    return text


def _bounds(metadata: Iterable[Any]) -> str:
    flat = [m for item in metadata for m in getattr(item, "metadata", [item])]
    low = [f"from {m.ge:g}" for m in flat if isinstance(m, Ge)]
    low += [f"above {m.gt:g}" for m in flat if isinstance(m, Gt)]
    high = [f"to {m.le:.10g}" for m in flat if isinstance(m, Le)]
    high += [f"below {m.lt:.10g}" for m in flat if isinstance(m, Lt)]
    return "".join(f" {bound}" for bound in (*low, *high))


_ADMIN_PATHS: Final = '''\
"""Paths of all engines that change an engine or tell of other clients, for the gateway.

Generated by python -m appliance.install.reference from the modules of engines, which would cost the
gateway 0.7 MB: change those instead.
"""

from typing import Final

ADMIN_PATHS: Final = frozenset(
    {{
{paths}    }}
)

ADMIN_WRITES: Final = frozenset(
    {{
{writes}    }}
)
"""Admin paths only for methods that write."""
'''


def admin_paths_module() -> str:
    """Return the text of appliance/routing/admin_paths.py."""
    paths = {path for engine in ENGINES.values() for path in engine.admin_paths}
    writes = {path for engine in ENGINES.values() for path in engine.admin_writes}
    return _ADMIN_PATHS.format(paths=_items(paths), writes=_items(writes))


def _items(words: Iterable[str]) -> str:
    return "".join(f'        "{word}",\n' for word in sorted(words))


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "docs/reference/settings.md": settings_page,
    "docs/reference/profiles.md": profiles_page,
    "docs/reference/traps.md": lambda: traps_page(_NOTE),
    "appliance/routing/admin_paths.py": admin_paths_module,
}
"""Generated files by path from the root of the source, with the function that makes the text."""


def main() -> int:
    """Write all generated files."""
    root = Path(__file__).parents[2]
    for name, text in GENERATED.items():
        (root / name).write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

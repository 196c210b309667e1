"""Text of docs/reference/traps.md, from the table of traps."""

from collections.abc import Iterable
from typing import Final

from appliance.engines import ENGINES
from appliance.profiles.linting.prevented_traps import PREVENTED
from appliance.profiles.linting.trap import ANY_ENGINE, Trap
from appliance.profiles.linting.traps import RETIRED, TRAPS

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
        rows="".join(_row(trap) for trap in sorted(TRAPS, key=lambda trap: trap.name)),
        prevented="".join(_cells(t.statement, t.prevented_by, t.source) for t in PREVENTED),
        retired=_RETIRED.format(rows="".join(gone)) if gone else "",
    )


def _row(trap: Trap) -> str:
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

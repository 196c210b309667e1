"""Arguments and variables that an owner may not add to an engine's."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines import sglang, vllm
from appliance.engines.shared.refused_arguments import ArgumentRules
from appliance.model.errors import ProfileError
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL


def refused(engine: str, *arguments: str) -> bool:
    """Whether the engine's profile with these further arguments is refused for them."""
    quoted = ", ".join(f"'{a}'" for a in arguments)
    text = f"{MINIMAL[engine]}extra_args = [{quoted}]\n"
    try:
        parse_profile("x", text.encode())
    except ProfileError as error:
        return str(error).startswith("x.toml:5: ")
    return False


@pytest.mark.parametrize("engine", ["llama-server", "vllm", "sglang"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("--host", "10.0.0.1"),
        ("--host=10.0.0.1",),
        ("--port", "1"),
        ("--api-key", "secret"),
        ("--api_key", "secret"),
        ("--", "--host"),
    ],
)
def test_no_engine_is_moved_off_its_address(engine: str, arguments: tuple[str, ...]) -> None:
    """Host, port and keys are the appliance's on every engine, however they are spelt."""
    assert refused(engine, *arguments)


@pytest.mark.parametrize(
    ("engine", "argument"),
    [
        ("llama-server", "--reuse-port"),
        ("llama-server", "--fit"),
        ("llama-server", "--tools"),
        ("llama-server", "--agent"),
        ("llama-server", "--mcp-servers-config"),
        ("llama-server", "--models-dir"),
        ("llama-server", "--rpc"),
        ("llama-server", "--cors-origins"),
        ("llama-server", "--ctx_size"),
        ("llama-server", "-ngl"),
        ("llama-server", "--log-prompts-dir"),
        ("vllm", "--disable-prefix-caching"),
        ("vllm", "--enable-custom-all-reduce"),
        ("vllm", "--disable-auto-tool-choice"),
        ("sglang", "--enable-custom-logit-processor"),
        ("sglang", "--gated-launch-port"),
        ("sglang", "--decoupled-spec-bind-endpoint"),
        ("sglang", "--smg-http-sidecar-port"),
        ("sglang", "--modelexpress-config"),
        ("vllm", "--uds"),
        ("vllm", "--hos"),
        ("vllm", "--confi"),
        ("vllm", "--config=x.yaml"),
        ("vllm", "--tool-server"),
        ("vllm", "--allowed-origins"),
        ("vllm", "--disable-log-stats"),
        ("vllm", "--max-model-len"),
        ("vllm", "-tp"),
        ("vllm", "--enable-log-requests"),
        ("vllm", "--kv-transfer-config"),
        ("sglang", "--config"),
        ("sglang", "--dist-init-addr"),
        ("sglang", "--admin-api-key"),
        ("sglang", "--tp-size"),
        ("xllamacpp", "--anything"),
        ("llama-server", "--api-prefix"),
        ("llama-server", "--slot-save-path"),
        ("llama-server", "--lookup_cache_dynamic"),
        ("llama-server", "-lcd"),
        ("llama-server", "--props"),
        ("llama-server", "--verbose"),
        ("llama-server", "--gpt-oss-20b-default"),
        ("llama-server", "--cors-anything-new"),
        ("vllm", "--root-path"),
        ("vllm", "--root_p"),
        ("vllm", "--kv-transfer-config.kv_connector=NixlConnector"),
        ("vllm", "--kv_transfer_config.kv_connector"),
        ("vllm", "--kv-tr.kv_connector"),
        ("vllm", "-sc.method=ngram"),
        ("vllm", "-s"),
        ("vllm", "--spec-method"),
        ("vllm", "--spec-m"),
        ("vllm", "-n"),
        ("vllm", "-n2"),
        ("vllm", "-r"),
        ("vllm", "-r0"),
        ("vllm", "-sc"),
        ("vllm", "--device-memory-utilization"),
        ("vllm", "--grpc-port"),
        ("vllm", "-dpb"),
        ("vllm", "-dp"),
        ("vllm", "--data-parallel-size"),
        ("vllm", "--data_parallel_backend=ray"),
        ("vllm", "--otlp-traces-endpoint"),
        ("vllm", "--device-ids"),
        ("vllm", "--enable-scale-out"),
        ("vllm", "--no-enforce-eager"),
        ("vllm", "--no-enf"),
        ("vllm", "--trust-request-chat-template"),
        ("vllm", "--logging-config.version=1"),
        ("sglang", "--grpc-port"),
        ("sglang", "--smg-grpc-port"),
        ("sglang", "--fastapi-root-path"),
        ("sglang", "--log-requests-level"),
        ("sglang", "--sidecar"),
        ("sglang", "--trust-request-chat-template"),
        ("sglang", "--file-storage-path"),
        ("sglang", "--spec-trace-dir"),
        ("sglang", "--disable-cuda-graph"),
        ("llama-server", "+either"),
        ("llama-server", "-ot"),
        ("llama-server", "--no-mmap"),
        ("llama-server", "--temp"),
        ("llama-server", "-md"),
        ("llama-server", "--spec-ngram-mod-n-max"),
        ("vllm", "-cc.mode"),
        ("vllm", "--compilation-config.max_cudagraph_capture_size=512"),
        ("vllm", "--override-generation-config"),
        ("vllm", "-ep"),
    ],
)
def test_what_opens_or_hides_something_is_refused(engine: str, argument: str) -> None:
    """Tools, other listeners, files of options, and what a key of the profile writes."""
    text = MINIMAL[engine]
    with pytest.raises(ProfileError):
        parse_profile("x", f"{text}extra_args = ['{argument}', 'v']\n".encode())


@pytest.mark.parametrize(
    ("engine", "argument"),
    [
        ("llama-server", "--no-warmup"),
        ("llama-server", "-fitx"),
        ("llama-server", "--override-kv"),
        ("vllm", "--seed"),
        ("vllm", "--revision"),
        ("vllm", "--max-logprobs"),
        ("vllm", "-O3"),
        ("vllm", "--config-format"),
        ("vllm", "--enable-sleep-mode"),
        ("llama-server", "--no-host"),
        ("sglang", "--random-seed"),
    ],
)
def test_other_arguments_pass(engine: str, argument: str) -> None:
    """Any option without a key of its own can still be given."""
    assert not refused(engine, argument, "v")


@pytest.mark.parametrize("engine", ["llama-server", "vllm", "sglang"])
def test_thinking_is_said_once(engine: str) -> None:
    """The chat template's switch is set by the key, or with the template's other variables."""
    table = f"[{engine}]\nchat_template_kwargs = {{ enable_thinking = true }}\n"
    parse_profile("x", (MINIMAL[engine] + table).encode())
    with pytest.raises(ProfileError, match="is what the key thinking says: keep one of the two"):
        parse_profile("x", (MINIMAL[engine] + 'thinking = "off"\n' + table).encode())


def test_further_arguments_begin_with_an_option() -> None:
    """A word before the first option would be one more value of the appliance's last option."""
    assert refused("vllm", "another-name", "--seed", "7")


KNOWN_RULES = {"vllm": vllm.RULES, "sglang": sglang.RULES}
STARTS = sorted(
    {
        o
        for rules in KNOWN_RULES.values()
        for o in (*rules.refused, *rules.keys, *rules.families, "--seed", "--no-", "-q", "--")
    }
)


def engines_parser(rules: ArgumentRules) -> argparse.ArgumentParser:
    """A parser as the engine has it: all refused options, one a family, and two that are free."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    options = {*rules.refused, *rules.keys, *(f"{family}x" for family in rules.families)}
    for place, option in enumerate(sorted(options)):
        parser.add_argument(option, dest=f"refused{place}", nargs="?", const=True)
    parser.add_argument("--seed", dest="free", nargs="?")
    parser.add_argument("--revision", dest="other", nargs="?")
    return parser


@given(
    st.sampled_from(sorted(KNOWN_RULES)),
    st.sampled_from(STARTS),
    st.integers(2, 40),
    st.sampled_from(["", "=1", "1", ".a=1", ".a", "_x", "x"]),
    st.booleans(),
)
def test_no_accepted_spelling_means_a_refused_option(
    engine: str,
    start: str,
    length: int,
    end: str,
    low: bool,  # noqa: FBT001  drawn by hypothesis
) -> None:
    """Any beginning, value or dotted key that argparse takes for a refused option is refused."""
    argument = (start[:2] + start[2:].replace("-", "_") if low else start)[:length] + end
    rules = KNOWN_RULES[engine]
    if rules.refusal(argument) is not None or argument in {"-", "--"}:
        return
    # vLLM's parser rewrites dotted keys and underscores before argparse reads the arguments.
    name, equals, value = argument.partition("=")
    plain = name.partition(".")[0]
    plain = plain.replace("_", "-") if plain.startswith("--") else plain
    for form in {argument, plain, plain + equals + value}:
        try:
            found, _ = engines_parser(rules).parse_known_args([form])
        except argparse.ArgumentError:
            continue
        assert not [k for k, v in vars(found).items() if k.startswith("refused") and v], form


@pytest.mark.parametrize(
    "name",
    [
        "SGLANG_GRPC_PORT",
        "VLLM_DEBUG_LOG_API_SERVER_RESPONSE",
        "VLLM_DP_SIZE",
        "VLLM_USE_RUST_FRONTEND",
        "VLLM_NO_USAGE_STATS",
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "XDG_CONFIG_HOME",
        "PYTHONNOUSERSITE",
        "LISTEN_FDS",
        "LLAMA_ARG_HOST",
        "LLAMA_ARG_CTX_SIZE",
        "LLAMA_API_KEY",
        "VLLM_HOST_IP",
        "VLLM_API_KEY",
        "VLLM_SERVER_DEV_MODE",
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
        "CUDA_VISIBLE_DEVICES",
        "NCCL_SOCKET_IFNAME",
        "NOTIFY_SOCKET",
    ],
)
def test_variables_that_would_override_us_are_refused(name: str) -> None:
    """The address, the GPUs, being offline, secrets and systemd's own are not for [env]."""
    text = f'{MINIMAL["llama-server"]}[env]\n{name} = "x"\n'
    with pytest.raises(ProfileError, match=rf'^x.toml:6: "{name}" is refused: '):
        parse_profile("x", text.encode())


@pytest.mark.parametrize(
    "argv",
    [
        '["/c", "{port}", "--host", "192.168.1.5"]',
        '["/c", "{port}", "--host=0.0.0.0"]',
        '["/c", "{port}", "--bind", "[::]:80"]',
        '["/c", "--listen", "0.0.0.0:{port}"]',
        '["/c", "tcp://0.0.0.0:{port}"]',
        '["/c", "{port}", "--host", "::"]',
        '["/c", "{port}", "--api-key", "x"]',
        '["/c", "{port}", "--api-prefix", "/x"]',
        '["/c", "{port}", "--root_path=/x"]',
        '["/c", "{port}", "{socket}"]',
        '["/c", "{port}", "{model}"]',
    ],
)
def test_a_command_stays_on_loopback(argv: str) -> None:
    """A command that names another address, a secret or an unset placeholder is refused."""
    text = f'engine = "command"\nport = 8104\n[command]\nargv = {argv}\n'
    with pytest.raises(ProfileError):
        parse_profile("x", text.encode())


@pytest.mark.parametrize(
    "argv",
    [
        '["/c", "--host", "{host}", "--port", "{port}"]',
        '["/c", "--host", "localhost", "--port={port}"]',
        '["/c", "--listen", "127.0.0.1:{port}"]',
        '["/c", "--bind={host}:{port}"]',
    ],
)
def test_a_command_may_name_loopback(argv: str) -> None:
    """Loopback may be written out, or as a placeholder."""
    text = f'engine = "command"\nport = 8104\n[command]\nargv = {argv}\n'
    parse_profile("x", text.encode())

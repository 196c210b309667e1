"""What an owner may not add to an engine's arguments and environment."""

import pytest

from appliance.adapters.profile_files.loading import parse_profile
from appliance.domain.errors import ProfileError
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
        ("-H", "10.0.0.1"),
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
        ("vllm", "--hf-overrides"),
        ("vllm", "--max-logprobs"),
        ("sglang", "--random-seed"),
    ],
)
def test_other_arguments_pass(engine: str, argument: str) -> None:
    """Any option without a key of its own can still be given."""
    assert not refused(engine, argument, "v")


def test_thinking_and_its_option_exclude_each_other() -> None:
    """The chat template's switches come from the key, or from the owner, never from both."""
    argument = """extra_args = ['--default-chat-template-kwargs={"a":1}']\n"""
    parse_profile("x", (MINIMAL["vllm"] + argument).encode())
    with pytest.raises(ProfileError, match="key thinking"):
        parse_profile("x", (MINIMAL["vllm"] + argument + 'thinking = "off"\n').encode())


@pytest.mark.parametrize(
    "name",
    [
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

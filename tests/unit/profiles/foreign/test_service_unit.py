"""Units of systemd: their command with variables and specifiers, and what becomes of their settings."""

import pytest

from appliance.profiles.foreign.server_command import DispositionKind
from tests.fakes.imports import extra_words, fates, imported, one_draft, values


def unit(service: str, head: str = "") -> str:
    """Return a unit with these settings."""
    return f"{head}[Service]\n{service}\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/opt/llama-server -m /m/x --keep $T", ["--keep", "5"]),
        ("/opt/llama-server -m /m/x --keep ${T}", ["--keep", "5"]),
        ("/opt/llama-server -m /m/x $MORE", ["-s", "20"]),
        ("/opt/llama-server -m /m/x --grammar 100%%", ["--grammar", "100%"]),
        ("/opt/llama-server -m /m/x --tags %p-%i", ["--tags", "llama-qwen"]),
        ("-/opt/llama-server -m /m/x --tags 'a b'", ["--tags", "a b"]),
        ("/opt/llama-server -m /m/x --tags $$x", ["--tags", "$x"]),
    ],
)
def test_words_of_the_command(line: str, words: list[str]) -> None:
    """Variables of the unit, specifiers and quotes are read as systemd reads them."""
    text = unit(f'Environment=T=5 "MORE=-s 20" LOOSE\nExecStart={line}')
    assert extra_words(one_draft(text, "llama@qwen.service")) == words


def test_specifiers_of_the_user() -> None:
    """The home of the unit's user is known; root's profile gets a user of its own."""
    text = unit("User=llama\nExecStart=/opt/llama-server -m %h/x --tags %u")
    draft = one_draft(text, "a.service")
    assert (values(draft)["model"], values(draft)["user"]) == ("/home/llama/x", "llama")
    text = unit("User=root\nWorkingDirectory=-%h\nExecStart=/opt/llama-server -m x")
    draft = one_draft(text, "a.service")
    assert values(draft)["model"] == "/root/x"
    assert "user" not in values(draft)


@pytest.mark.parametrize("word", ["%i", "%t/x", "%h/x", "x%"])
def test_specifiers_that_the_file_does_not_tell(word: str) -> None:
    """An instance, a directory of the manager or a home without a user is unknown."""
    text = unit(f"ExecStart=/opt/llama-server -m {word}")
    (refusal,) = imported(text, "llama@.service").refusals
    assert "does not tell what systemd puts there" in refusal.reason


def test_lists_are_reset_by_an_empty_value() -> None:
    """A drop-in that resets a list leaves what comes after it."""
    text = unit(
        "Environment=A=1\nExecStart=/opt/llama-server -m /m/x\nEnvironment=\nEnvironment=B=2\n"
        "ExecStart=\nExecStart=/opt/llama-server -m /m/y"
    )
    draft = one_draft(text, "a.service")
    assert values(draft)["model"] == "/m/y"
    assert {k for k in values(draft) if k.startswith("env.")} == {"env.B"}


def test_settings_of_the_unit() -> None:
    """Limits go to [unit]; what our own unit has, and what no profile may set, is told."""
    head = "[Unit]\nDescription=A\nDescription=My model\nAfter=x.target\nBefore=y.service\n"
    text = (
        unit(
            "ExecStart=/opt/llama-server -m /m/x\nNice=-5\nCPUAffinity=0-7\nNice=nonsense\nEnvironmentFile=-/e\n"
            "Type=simple\nRestart=always\nTimeoutStopSec=1m30s\nExecStartPre=/bin/x\nProtectClock=yes",
            head,
        )
        + "[Install]\nWantedBy=multi-user.target\n"
    )
    draft = one_draft(text, "a.service")
    keys = values(draft)
    assert keys["description"] == "My model"
    assert keys["deadlines.stop"] == "90s"
    assert (keys["unit.Service.Nice"], keys["unit.Service.CPUAffinity"]) == ("-5", "0-7")
    changed = fates(draft, DispositionKind.CHANGED)
    assert {
        "Type=simple",
        "Restart=always",
        "After=x.target",
        "WantedBy=multi-user.target",
    } <= changed.keys()
    dropped = fates(draft, DispositionKind.DROPPED)
    assert dropped["EnvironmentFile=-/e"].startswith("another file is not read")
    assert dropped["ExecStartPre=/bin/x"].startswith("set command under [patch]")
    assert dropped["Before=y.service"].startswith("give the other unit")
    assert {"ProtectClock=yes", "Nice=nonsense"} <= dropped.keys()


def test_ollama_is_a_command() -> None:
    """Ollama becomes a command that has its address in a variable."""
    text = unit(
        "ExecStart=/usr/bin/ollama serve\nUser=ollama\nNice=5\n"
        "Environment=OLLAMA_HOST=0.0.0.0 OLLAMA_MODELS=/d CUDA_VISIBLE_DEVICES=1 PATH=/x",
        "[Unit]\nDescription=Models\n",
    )
    draft = one_draft(text, "ollama.service")
    keys = values(draft)
    assert keys["command.argv"] == [
        "/usr/bin/env",
        "OLLAMA_HOST={host}:{port}",
        "/usr/bin/ollama",
        "serve",
    ]
    assert (keys["gpus"], keys["port"], keys["user"]) == ([1], 11434, "ollama")
    assert keys["gateway.keep_names"] is True  # a request for qwen3:8b is for that model
    assert (keys["env.OLLAMA_MODELS"], keys["unit.Service.Nice"]) == ("/d", "5")
    assert "OLLAMA_HOST=0.0.0.0" in fates(draft, DispositionKind.CHANGED)


def test_ollama_in_a_container() -> None:
    """The program of a container is looked for on the host."""
    keys = values(one_draft("docker run --gpus all -p 11500:11434 ollama/ollama"))
    assert keys["command.argv"] == [
        "/usr/bin/env",
        "OLLAMA_HOST={host}:{port}",
        "/usr/local/bin/ollama",
        "serve",
    ]
    assert (keys["gpus"], keys["port"]) == ("all", 11500)


def test_a_unit_that_is_too_long() -> None:
    """A unit of more than a quarter of a megabyte is refused when it is read by itself."""
    from appliance.profiles.foreign.server_command import ImportFaultError  # noqa: PLC0415
    from appliance.profiles.foreign.service_unit import read_unit  # noqa: PLC0415

    with pytest.raises(ImportFaultError, match="more than 256 KiB"):
        list(read_unit("x" * (256 * 1024 + 1), "a.service"))

"""Containers: GPUs, ports, paths and variables as the host has them, and keys of compose files."""

import pytest

from appliance.profiles.foreign.server_command import DispositionKind
from tests.fakes.imports import extra_words, fates, imported, one_draft, values

IMAGE = "vllm/vllm-openai --model a/b"


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ("--gpus all", "all"),
        ("--gpus=-1", "all"),
        ("--gpus 2", [0, 1]),
        ("""--gpus '"device=1,0"'""", [0, 1]),
        ("--gpus device=3", [3]),
        ("--gpus all -e CUDA_VISIBLE_DEVICES=2", [2]),
        ("--gpus device=2,3 -e CUDA_VISIBLE_DEVICES=1", [3]),
        ("--gpus device=2,3 -e CUDA_VISIBLE_DEVICES=7", [2, 3]),
        ("--gpus device=2,3 -e NVIDIA_VISIBLE_DEVICES=all", [2, 3]),
        ("-e NVIDIA_VISIBLE_DEVICES=all", "all"),
        ("-e CUDA_VISIBLE_DEVICES=", []),
        ("-e HIP_VISIBLE_DEVICES=1", [1]),
    ],
)
def test_gpus(options: str, gpus: object) -> None:
    """The GPUs of a container are those of the profile, by the host's indexes."""
    assert values(one_draft(f"docker run {options} {IMAGE}"))["gpus"] == gpus


@pytest.mark.parametrize(
    "options", ["--gpus device=GPU-12ab", "--gpus 99", "--gpus '$G'", "--gpus $G"]
)
def test_gpus_that_are_not_told(options: str) -> None:
    """GPUs by other names than indexes are told, and the profile has none."""
    draft = one_draft(f"docker run {options} {IMAGE}")
    assert "gpus" not in values(draft)
    assert any(text.startswith("--gpus") for text in fates(draft, DispositionKind.DROPPED))


@pytest.mark.parametrize(
    ("options", "port"),
    [
        ("-p 9000:8000", 9000),
        ("-p 127.0.0.1:9001:8000/tcp", 9001),
        ("--publish=9002:8000", 9002),
        ("-p9003:8000", 9003),
        ("-p 9004:8000 -p 9005:9", 9004),
        ("-p 8000", 8000),
        ("-p 123456:8000", 8000),
    ],
)
def test_the_published_port_is_the_profiles(options: str, port: int) -> None:
    """Clients know a container by its published port, so the profile has it."""
    assert values(one_draft(f"docker run {options} {IMAGE}"))["port"] == port


@pytest.mark.parametrize(
    ("mount", "model"),
    [
        ("-v /srv/models:/models", "/srv/models/x"),
        ("-v /srv/models:/models:ro", "/srv/models/x"),
        ("-v /srv/models/:/models/", "/srv/models/x"),
        ("-v ~/m:/models", "/home/ana/m/x"),
        ("-v ./m:/models", "/srv/box/m/x"),
        ("-v $PWD/m:/models", "/srv/box/m/x"),
        ("-v$(pwd):/models", "/srv/box/x"),
        ("--mount type=bind,source=/srv/models,target=/models", "/srv/models/x"),
        ("--mount type=bind,src=/srv/models,dst=/models,readonly", "/srv/models/x"),
        ("-v /a:/models -v /b:/models/x", "/b"),
    ],
)
def test_paths_of_the_container_are_those_of_the_host(mount: str, model: str) -> None:
    """A model below a mount is named by its path on the host."""
    draft = one_draft(f"docker run {mount} vllm/vllm-openai --model /models/x")
    assert values(draft)["model"] == model


@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        ("", "/models/x is inside the container's image"),
        ("-v models:/models", "/models/x is in the volume models"),
        ("-v $M:/models", "/models/x is in the volume $M:/models"),
        ("--mount type=volume,source=models,target=/models", "in the volume models"),
        ("-v /models", "inside the container's image"),
        ("-v ~bob/m:/models", "relative to an unknown directory"),
    ],
)
def test_models_that_only_the_container_has(mount: str, reason: str) -> None:
    """A model that is not on the host makes no profile."""
    (refusal,) = imported(f"docker run {mount} vllm/vllm-openai --model /models/x").refusals
    assert reason in refusal.reason


def test_other_paths_are_mapped_or_told() -> None:
    """Paths in further options and variables are the host's; those of the image are told."""
    draft = one_draft(
        "docker run -v /srv:/data -e CACHE=/data/c -e OTHER=/opt/y -e 'X=~/z' -e PLAIN=1 vllm/vllm-openai "
        "--model a/b --lora-modules l=/data/l --logit-processor n=/data/n --download-dir /data/d --tokenizer /opt/t --chat-template /opt/c"
    )
    assert values(draft)["env.CACHE"] == "/srv/c"
    assert values(draft)["env.X"] == "/home/ana/z"
    assert values(draft)["env.PLAIN"] == "1"
    assert values(draft)["adapters"] == [{"name": "l", "path": "/srv/l"}]
    assert extra_words(draft) == ["--logit-processor", "n=/srv/n", "--download-dir", "/srv/d"]
    dropped = fates(draft, DispositionKind.DROPPED)
    assert "copy it to the host" in dropped["--tokenizer /opt/t"]
    assert "copy it to the host" in dropped["--chat-template /opt/c"]
    assert "copy it to the host" in dropped["OTHER=/opt/y"]


def test_variables_of_the_container() -> None:
    """Tokens and caches are the appliance's, secrets are never copied, unknown values are told."""
    draft = one_draft(
        "A=1 docker run -e A -e B -e HF_TOKEN=hf_1 -e HF_HOME=/x -e DB_PASSWORD=p -e TZ=UTC -e C=$D "
        f"-e CUDA_VISIBLE_DEVICES=GPU-1 --env-file x {IMAGE}"
    )
    assert {k: v for k, v in values(draft).items() if k.startswith("env.")} == {"env.A": "1"}
    changed = fates(draft, DispositionKind.CHANGED)
    assert "HF_TOKEN=…" in changed
    assert "hf_home" in changed["HF_HOME=/x"]
    assert "TZ=UTC" in changed
    dropped = fates(draft, DispositionKind.DROPPED)
    assert "no secrets" in dropped["DB_PASSWORD=…"]
    assert "taken from outside" in dropped["B="]
    assert "does not set D" in dropped["C=$D"]
    assert "indexes" in dropped["CUDA_VISIBLE_DEVICES=GPU-1"]
    assert "--env-file x" in dropped


def test_settings_of_the_container_are_told() -> None:
    """Settings without meaning for a unit are told with what takes their place."""
    draft = one_draft(
        f"docker run -d --name q --memory 8g --ulimit memlock=-1 --restart always {IMAGE}"
    )
    assert draft.name == "q"
    assert {"-d", "--name q", "--restart always"} <= fates(draft, DispositionKind.CHANGED).keys()
    assert {"--memory 8g", "--ulimit memlock=-1"} <= fates(draft, DispositionKind.DROPPED).keys()


def test_a_switch_at_the_end_has_no_value() -> None:
    """An option of docker at the end of the line is read without a value, and no image is left."""
    (refusal,) = imported("docker run -v").refusals
    assert "names no image" in refusal.reason


def test_the_last_mount_without_a_directory_is_unknown() -> None:
    """A relative mount in a file whose directory is not known leads nowhere."""
    text = "docker run -v m/x:/models -v ./y:/other vllm/vllm-openai --model /other/x"
    (refusal,) = imported(text, directory=None).refusals
    assert "in the volume" in refusal.reason


def compose(service: str, more: str = "") -> str:
    """Return a compose file with one service of vLLM."""
    return f"services:\n  a:\n    image: vllm/vllm-openai\n{service}\n{more}"


@pytest.mark.parametrize(
    ("service", "key", "value"),
    [
        ("    command: --model a/b --max-model-len ${L:-4096}", "ctx", 4096),
        ("    command: [--model, a/b, --max-model-len, 4096]", "ctx", 4096),
        ("    command: --model a/b\n    ports: [{published: 9000, target: 8000}]", "port", 9000),
        ("    command: --model a/b\n    ports: [{target: 8000}, '9001:8000']", "port", 9001),
        ("    command: --model a/b\n    gpus: all", "gpus", "all"),
        ("    command: --model a/b\n    gpus: [{count: 1}]", "gpus", [0]),
        (
            "    command: --model a/b\n    deploy: {resources: {reservations: {devices: [x, {}, {device_ids: ['1']}]}}}",
            "gpus",
            [1],
        ),
        ("    command: --model a/b\n    environment: {A: 1, B: }", "env.A", "1"),
        ("    command: --model a/b\n    environment: ['A=$$1', B, [x]]", "env.A", "$1"),
        (
            "    command: --model /m/x\n    volumes: [{type: bind, source: /s, target: /m}, [x]]",
            "model",
            "/s/x",
        ),
        ("    command: --model a/b --seed $$X", "engine", "vllm"),
    ],
)
def test_keys_of_compose_files(service: str, key: str, value: object) -> None:
    """Command, ports, variables, mounts and devices of a service are the profile's."""
    assert values(one_draft(compose(service), "a.yaml"))[key] == value


@pytest.mark.parametrize(
    ("options", "model"),
    [("driver_opts: {device: /s}", "/s/x"), ("driver: local", None)],
)
def test_named_volumes(options: str, model: str | None) -> None:
    """A named volume is known where the file binds it to a directory."""
    service = "    command: --model /m/x\n    volumes: ['v:/m', '/only']"
    found = imported(compose(service, f"volumes: {{v: {{{options}}}}}"), "a.yaml")
    if model is None:
        assert "in the volume v" in found.refusals[0].reason
    else:
        assert values(found.drafts[0])["model"] == model


def test_other_files_of_compose_files_are_not_read() -> None:
    """Includes, extensions and files of variables are named and not opened."""
    text = compose(
        "    command: --model a/b\n    extends: {file: b.yaml}\n    env_file: .env\n    cap_add: [x]",
        "include: [c.yaml]",
    )
    dropped = fates(one_draft(text, "a.yaml"), DispositionKind.DROPPED)
    assert {"include", "extends", "env_file", "cap_add"} <= dropped.keys()
    assert all("another file is not read" in dropped[k] for k in ("include", "extends", "env_file"))


def test_services_that_are_no_tables() -> None:
    """A service that is no table is passed over."""
    assert imported("services: {a: 1}\nvolumes: 1", "a.yaml").drafts == ()

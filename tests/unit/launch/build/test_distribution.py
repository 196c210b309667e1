"""Version and options of engines that are Python packages, read in the files of their environments."""

from pathlib import Path

import pytest

from appliance.launch.build.distribution import Distribution

SOURCE = """
class Args:
    def add(parser):
        group.add_argument("--served-model-name", **kwargs)
        group.add_argument('--uds', '--port', help="not --this-one")
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The directory of packages of an environment with vllm 0.33.0."""
    packages = tmp_path / "venv/lib/python3.12/site-packages"
    (packages / "vllm-0.33.0+cu128.dist-info").mkdir(parents=True)
    (packages / "vllm/engine").mkdir(parents=True)
    (packages / "vllm/engine/arg_utils.py").write_text(SOURCE)
    (tmp_path / "venv/bin").mkdir()
    return packages


def found(program: Path) -> Distribution:
    sources = ("vllm/engine/arg_utils.py", "vllm/gone.py", "vllm/fields/", "vllm/none/")
    return Distribution(str(program), "vllm", sources)


@pytest.mark.parametrize(
    "text",
    [
        "#!{venv}/bin/python\nimport vllm\n",
        "#! {venv}/bin/python3.12\n",
        "#!/bin/sh\n'''exec' {venv}/bin/python3 \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"{venv}/bin/python3\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_the_first_line_of_a_script_leads_to_its_package(packages: Path, text: str) -> None:
    """The interpreter that installers write, also where its path is too long for a first line."""
    venv = packages.parents[2]
    script = venv / "bin/vllm"
    script.write_text(text.format(venv=venv))
    build = found(script).build(5.0)
    assert (build.version, build.is_complete, build.asked_unix_s) == ("0.33.0+cu128", False, 5.0)
    assert build.has("--served-model-name")
    assert build.has("--uds")
    assert build.has("--this-one") is False


def test_an_interpreter_is_asked_for_its_own_packages(packages: Path) -> None:
    """A virtual environment's interpreter is a link, which is not followed."""
    python = packages.parents[2] / "bin/python3"
    python.symlink_to("/usr/bin/python3")
    distribution = found(python)
    assert distribution.build(0.0).version == "0.33.0+cu128"
    metadata = packages / "vllm-0.33.0+cu128.dist-info"
    assert distribution.files[0] == str(metadata)
    assert str(packages / "vllm/engine/arg_utils.py") in distribution.files


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF" + bytes(8192), b"#!/usr/bin/env python3\n", b"#!" + b"/" * 5000]
)
def test_another_program_has_no_package(tmp_path: Path, content: bytes) -> None:
    """A program whose environment is not known leaves nothing to guess."""
    program = tmp_path / "vllm"
    program.write_bytes(content)
    build = found(program).build(0.0)
    assert build.problem == "no package vllm in the environment of its interpreter"
    assert not found(program).files


def test_a_missing_program_has_no_package(tmp_path: Path) -> None:
    """Neither has a directory."""
    assert found(tmp_path / "missing").build(0.0).problem
    assert found(tmp_path).build(0.0).problem


def test_a_folder_of_modules_is_read(packages: Path) -> None:
    """Every module in it declares options, and nothing else in it does; its stamp is the folder's."""
    folder = packages / "vllm/fields"
    folder.mkdir()
    (folder / "memory.py").write_text('class M:\n    kv_dtype: A[str, "type"] = "auto"\n')
    (folder / "notes.txt").write_text('parser.add_argument("--note")\n')
    distribution = found(packages.parents[2] / "bin/python")
    build = distribution.build(0.0)
    assert (build.has("--kv-dtype"), build.has("--note")) == (True, False)
    assert f"{folder}/" in distribution.files


def test_sources_without_the_options_of_a_server_tell_nothing(packages: Path) -> None:
    """A release that has moved its sources is a build that is not known, rather than one without options."""
    (packages / "vllm/engine/arg_utils.py").write_text('parser.add_argument("--port")\n')
    build = found(packages.parents[2] / "bin/python").build(0.0)
    assert (build.version, build.options) == ("0.33.0+cu128", {})
    assert build.problem == "the sources of vllm 0.33.0+cu128 do not declare --served-model-name"


def test_a_source_without_end_is_not_read(packages: Path) -> None:
    """A source of two mebibytes declares no options."""
    source = packages / "vllm/engine/arg_utils.py"
    source.write_text(SOURCE + "#" * (2 << 20))
    python = packages.parents[2] / "bin/python"
    build = found(python).build(0.0)
    assert build.version
    assert not build.options

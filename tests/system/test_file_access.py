"""Files that an engine cannot open are found before anything is stopped, and homes show what is needed."""

import pytest

from tests.system.fleet import ENGINE, Fleet

MODEL = "/srv/models/p.gguf"


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    """A box with the profiles a and b, a serving, and a person with a closed home."""
    person = "useradd --create-home --home-dir /home/ana ana; chmod 700 /home/ana"
    shared_fleet.box.run(f"id -u ana 2>/dev/null || {{ {person}; }}")
    return shared_fleet


def warnings(fleet: Fleet) -> str:
    """Return the warnings of apply."""
    return fleet.box.run("appliance apply 2>&1 >/dev/null", check=False).stdout


def test_a_private_model_is_refused_until_it_may_be_read(fleet: Fleet) -> None:
    """The mode that save_pretrained writes; apply warns, a switch stops nothing, the way out works."""
    fleet.box.run(f"mkdir -p /srv/models; echo GGUF > {MODEL}; chmod 600 {MODEL}")
    fleet.profile("private", 9003, top=f'gpus = []\nmodel = "{MODEL}"')
    problem = f"may not read {MODEL} (0600, owner root): "
    assert problem in warnings(fleet)
    pid = fleet.main_pid("a")
    answer = fleet.cli("switch", "private")
    assert answer.exit == 1, answer
    _said, found, remedy = answer.result["message"].partition(problem)
    assert (found, fleet.main_pid("a")) == (problem, pid)
    fleet.box.run(remedy.replace("sudo ", ""))
    assert problem not in warnings(fleet)
    fleet.switch("private")
    fleet.box.run(f"chmod 755 /srv; chmod 700 {MODEL.rpartition('/')[0]}")
    answer = fleet.cli("restart", "private")
    assert answer.exit == 1, answer
    assert "may not enter /srv/models (0700" in answer.result["message"]
    assert fleet.active() == ["private"]


def test_a_model_in_a_temporary_directory_is_refused(fleet: Fleet) -> None:
    """A unit has directories of its own there."""
    fleet.box.run("echo GGUF > /tmp/p.gguf")
    fleet.profile("passing", 9003, top='gpus = []\nmodel = "/tmp/p.gguf"')
    assert "the engine cannot see /tmp/p.gguf" in warnings(fleet)
    assert fleet.cli("switch", "passing").exit == 1
    assert fleet.active() == ["a"]


def test_an_interpreter_in_a_home_is_shown_to_the_engine(fleet: Fleet) -> None:
    """A virtual environment in a closed home, made from an interpreter elsewhere in it, serves."""
    fleet.box.run(
        "cd /home/ana; mkdir -p uv/cpython-3/bin venv/bin; ln -s cpython-3 uv/cpython;"
        "cp $(readlink -f /usr/bin/python3) uv/cpython-3/bin/python3;"
        "ln -s /home/ana/uv/cpython/bin/python3 venv/bin/python;"
        "echo home = /home/ana/uv/cpython/bin > venv/pyvenv.cfg;"
        f"{{ echo '#!/home/ana/venv/bin/python -S'; cat {ENGINE}; }} > venv/bin/engine;"
        "chmod 755 venv/bin/engine; chown -R ana: .; chmod 700 ."
    )
    fleet.box.write(
        "/etc/appliance/profiles/venv.toml",
        'engine = "command"\nport = 9003\ngpus = []\n'
        '[command]\nargv = ["/home/ana/venv/bin/engine", "{port}"]\n',
    )
    assert warnings(fleet) == ""
    fleet.switch("venv")
    assert fleet.show("venv", "BindReadOnlyPaths").count("/home/ana/") == 6, "source and place of 3"
    fleet.box.run(
        "cd /home/ana; chmod 755 .; mkdir -p other/bin; cp uv/cpython/bin/python3 other/bin;"
        "ln -sfn /home/ana/other/bin/python3 venv/bin/python; chown -h ana: venv/bin/python"
    )
    answer = fleet.cli("restart", "venv")
    assert answer.exit == 1, answer
    assert "the engine cannot see /home/ana/other" in answer.result["message"]
    assert "the engine cannot see /home/ana/other" in warnings(fleet), "root's, by a link of ana's"
    fleet.box.run("chown -R ana: /home/ana/other")
    assert warnings(fleet) == ""
    assert fleet.cli("restart", "venv").exit == 0


def test_a_private_program_is_refused(fleet: Fleet) -> None:
    """An engine that its user may not run is told before anything is stopped."""
    fleet.box.run(
        "mkdir -p /opt/closed/bin; cp /usr/bin/env /opt/closed/bin/e; chmod 700 /opt/closed"
    )
    fleet.box.write(
        "/etc/appliance/profiles/closed.toml",
        'engine = "command"\nport = 9003\ngpus = []\n[command]\nargv = ["/opt/closed/bin/e", "{port}"]\n',
    )
    assert "may not enter /opt/closed (0700, owner root)" in warnings(fleet)
    assert fleet.cli("switch", "closed").exit == 1
    assert fleet.active() == ["a"]

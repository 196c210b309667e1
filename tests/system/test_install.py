"""install.sh: what it puts where, again, without systemd, back, and away."""

import json
import re
from collections.abc import Iterator

import pytest

from appliance.model.paths import BACKEND_SCRIPT, GATE_SCRIPT
from tests.system.rig import Box, Image
from tests.system.rig.appliance import SOURCE, WHEELS, fetch_wheels, install, sources

INSTALL = f"{SOURCE}/scripts/install.sh"
OFFLINE = f"{INSTALL} --wheels {WHEELS} --no-index"
PREFIX = "/opt/appliance"

SERVICE_USERS = (
    "appliance",
    *(
        f"appliance-{name}"
        for name in ("gateway", "health", "notifier", "auditor", "checker", "web")
    ),
    "appliance-backend",
)
LEFT = (
    "ls -d /opt/appliance /usr/local/lib/systemd/system/appliance* /usr/local/bin/appliance"
    " /usr/local/lib/sysusers.d/appliance.conf /usr/local/lib/tmpfiles.d/appliance.conf"
    " /usr/local/lib/systemd/catalog/appliance.catalog"
    " /usr/local/share/man/man1/appliance*"
    " /usr/local/share/appliance /usr/local/share/zsh/site-functions/_appliance"
    " /etc/systemd/system/*.wants/appliance* /var/lib/appliance-applied"
    " /etc/polkit-1/rules.d/50-appliance.rules /etc/systemd/system/appliance-* 2>/dev/null"
)


@pytest.fixture
def installed(image: Image) -> Iterator[Box]:
    """A booted box with the appliance installed that sees the checkout and the wheels."""
    with Box(image, read_only=sources(fetch_wheels())) as box:
        yield box


@pytest.fixture(scope="module")
def untouched(image: Image) -> Iterator[Box]:
    """Share one such box among the tests that leave its appliance as it is."""
    with Box(image, read_only=sources(fetch_wheels())) as box:
        yield box


@pytest.fixture(scope="module")
def bare(rig: type[Box]) -> Iterator[Box]:
    """A box without the appliance that sees the checkout and the wheels."""
    with rig(read_only=sources(fetch_wheels())) as box:
        yield box


def names(box: Box, directory: str) -> list[str]:
    """Return the names in a directory of the box, sorted."""
    return sorted(p.name for p in (box.root / directory.lstrip("/")).iterdir())


def change_version(box: Box) -> str:
    """Make the box a changed copy of the checkout; the command that installs it."""
    box.run(f"cp -r {SOURCE} /root/changed; echo '# changed' >>/root/changed/appliance/__init__.py")
    return OFFLINE.replace(SOURCE, "/root/changed")


def test_supervisor_is_up_after_an_install_and_after_a_reboot(installed: Box) -> None:
    """After an install, and after every boot, the supervisor runs and nothing has failed."""
    for _ in range(2):
        installed.wait_for("systemctl is-active appliance-supervisor.service")
        assert installed.run("systemctl list-units --failed --no-legend").stdout == ""
        assert (
            "serving"
            not in json.loads(installed.run("appliance status --json", check=False).stdout)[
                "verdict"
            ]["state"]
        )
        installed.reboot()


def test_service_users_cannot_write_what_runs_as_root(untouched: Box) -> None:
    """Files below the prefix belong to root, and no other user may write them."""
    find = rf"find {PREFIX} -not -type l \( -not -user root -o -not -group root -o -perm /022 \)"
    assert untouched.run(find).stdout == ""
    for user in SERVICE_USERS:
        probe = f"{PREFIX}/current/bin/python -I -c 'import appliance'"
        assert untouched.run(probe, user=user).stdout == ""
        assert untouched.run(f"test -w {PREFIX}/current/lib", user=user, check=False).returncode


def test_the_command_imports_what_root_installed(untouched: Box) -> None:
    """Neither a variable of the environment nor a directory changes what the command imports."""
    untouched.write("/root/mine/appliance.py", "raise SystemExit('mine')\n")
    started = "cd /root/mine && PYTHONPATH=/root/mine PYTHONSTARTUP=/root/mine/appliance.py"
    release = untouched.run(f"readlink {PREFIX}/current").stdout.strip()
    version, _, build = release.removeprefix("releases/").rpartition("-")
    told = untouched.run(f"{started} appliance version").stdout
    assert told.startswith(f"appliance {version} (build {build})\n")


def test_start_scripts_are_roots_and_isolated(untouched: Box) -> None:
    """Start scripts of the command, gate and wrapper are root's alone to write, and run `python -IS`."""
    for name in ("bin/appliance", GATE_SCRIPT, BACKEND_SCRIPT):
        script = f"{PREFIX}/current/{name}"
        release = untouched.run(f"readlink -f {PREFIX}/current").stdout.strip()
        assert untouched.run(f"stat -c '%U:%G %a' {script}").stdout == "root:root 755\n"
        assert untouched.run(f"head -n 1 {script}").stdout == f"#!{release}/bin/python -IS\n"


def test_bytecode_is_compiled_for_everything(untouched: Box) -> None:
    """No module is left to be compiled at start by users who could not store the result."""
    package = f"{PREFIX}/current/lib/python3*/site-packages/appliance"
    sources_found = untouched.run(f"find {package} -name '*.py' | wc -l").stdout
    assert untouched.run(f"find {package} -name '*.pyc' | wc -l").stdout == sources_found


def test_the_installed_documentation_leads_somewhere(untouched: Box) -> None:
    """Links of the installed pages name files that are installed."""
    share = untouched.root / "usr/local/share/appliance"
    pages = list(share.rglob("*.md"))
    assert {p.relative_to(share).parts[0] for p in pages} == {"README.md", "CHANGELOG.md", "docs"}
    for page in pages:
        for target in re.findall(r"\]\(([^):#]+)[)#]", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_second_install_changes_nothing(installed: Box) -> None:
    """Installing the same thing again keeps the release, and leaves no earlier one."""
    before = names(installed, f"{PREFIX}/releases")
    installed.write("/etc/appliance/profiles/mine.toml", "engine = 'command'\n")
    install(installed)
    assert names(installed, f"{PREFIX}/releases") == before
    assert names(installed, PREFIX) == ["current", "releases"]
    assert names(installed, "/etc/appliance/profiles") == ["mine.toml"]


def test_upgrade_keeps_one_release_before_and_rolls_back(installed: Box) -> None:
    """An upgrade swaps the release, restarts the supervisor and can be taken back once."""
    main_pid = "systemctl show -P MainPID appliance-supervisor.service"
    old, pid = names(installed, f"{PREFIX}/releases")[0], installed.run(main_pid).stdout
    installed.run(change_version(installed), timeout_s=200)
    releases = names(installed, f"{PREFIX}/releases")
    assert len(releases) == 2
    assert (installed.root / "opt/appliance/current").readlink().name in set(releases) - {old}
    assert installed.run(main_pid).stdout not in {pid, "0\n"}
    installed.run(f"{INSTALL} --rollback")
    assert (installed.root / "opt/appliance/current").readlink().name == old
    again = installed.run(f"{INSTALL} --rollback", check=False)
    assert again.returncode == 1
    assert "there is no release before this one" in again.stderr
    assert (installed.root / "opt/appliance/current").readlink().name == old


BEFORE = """
cd /usr/local/lib/systemd/system
sed -i 's/appliance-gateway$/appliance/' appliance-gateway.service
sed -i '/^User=/,/^InaccessiblePaths=/s/^SupplementaryGroups=.*/SupplementaryGroups=appliance-operators/' \\
  appliance-gateway.service
sed -i 's/ appliance-request.socket//' appliance-supervisor.service
systemctl -q disable appliance-request.socket
systemctl -q stop appliance-gateway.socket appliance-supervisor.socket appliance-request.socket
systemctl -q stop appliance-gateway appliance-supervisor
rm appliance-request.socket
systemctl daemon-reload
userdel appliance-gateway
rm -rf /run/appliance-gateway
systemctl start appliance-supervisor.socket appliance-supervisor appliance-gateway.socket
systemctl start appliance-gateway
chmod 644 /var/lib/appliance/state.sqlite
"""
"""Makes of an installation one of the release whose daemons all ran as `appliance`."""


def test_upgrade_gives_the_gateway_its_own_user(installed: Box) -> None:
    """The new process has the new user, its files with it, and serves those who have a key."""
    installed.run(BEFORE)
    owner = "ps -o user:32= -p $(systemctl show -P MainPID appliance-gateway)"
    assert installed.run(owner).stdout == "appliance\n"
    key = installed.run("appliance key add phone").stdout.strip()
    installed.run(change_version(installed), timeout_s=200)
    assert installed.run(owner).stdout == "appliance-gateway\n"
    models = "curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:8010/v1/models -H 'x-api-key: {}'"
    assert installed.run(models.format(key)).stdout == "200"
    assert installed.run(models.format(f"{key}x")).stdout == "401"
    files = "/run/appliance-gateway /run/appliance/request.sock /var/lib/appliance/"
    found = installed.run(f"stat -c '%U:%G %a' {files}{{keys.json,state.sqlite}}").stdout.split(
        "\n"
    )
    assert found[:4] == [
        "appliance-gateway:appliance-gateway 700",
        "appliance-gateway:root 600",
        "appliance:appliance 640",
        "appliance:appliance 600",
    ]


def test_install_works_where_systemd_does_not_run(rig: type[Box]) -> None:
    """Installed from a chroot, the appliance is enabled there and comes up with the next boot."""
    hide = "mount -t tmpfs tmpfs /run && exec " + OFFLINE
    with rig(read_only=sources(fetch_wheels())) as box:
        box.run("unshare", "-m", "sh", "-c", hide, timeout_s=200)
        assert box.run("systemctl is-active appliance-supervisor", check=False).returncode
        box.reboot()
        box.wait_for("systemctl is-active appliance-supervisor.service")


def test_uninstall_keeps_what_is_the_operators(installed: Box) -> None:
    """Uninstalling takes everything but profiles and state, twice if asked; --purge those too."""
    installed.write("/etc/appliance/profiles/mine.toml", "engine = 'command'\n")
    installed.run("mkdir -p /run/appliance-backend/mine /var/cache/appliance-backend/mine")
    installed.run("mkdir -p /var/{lib,cache}/private/appliance-backend/mine /run/appliance-claimed")
    installed.write("/etc/appliance/appliance.toml", "[gateway]\nport = 8015\n")
    installed.run("appliance apply", check=False)
    installed.run("test -e /etc/systemd/system/appliance-gateway.socket.d/50-applied.conf")
    # Somebody connects all the time, and would start what has just been stopped.
    installed.run(
        "systemd-run -q --unit=client bash -c 'while :; do : </dev/tcp/127.0.0.1/8015; done'"
    )
    for _ in range(2):
        installed.run(f"{INSTALL} --uninstall")
        assert installed.run(LEFT, check=False).stdout == ""
        assert installed.run("systemctl list-units --all --no-legend 'appliance*'").stdout == ""
        installed.run("test -e /etc/appliance/profiles/mine.toml -a -d /var/lib/appliance")
    installed.run(f"{INSTALL} --uninstall --purge")
    anywhere = (
        "ls -d /etc/appliance* /run/appliance* /var/lib/appliance* /var/cache/appliance-backend"
        " /var/{lib,cache}/private/appliance-backend /var/cache/appliance-{supervisor,health}"
    )
    assert not installed.run(anywhere, check=False).stdout
    assert not installed.run(f"getent passwd {' '.join(SERVICE_USERS)}", check=False).stdout
    assert not installed.run(
        "getent group appliance-operators appliance-status", check=False
    ).stdout


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", "usr/local/share/bash-completion/completions/appliance"),
        ("zsh", "usr/local/share/zsh/site-functions/_appliance"),
        ("fish", "etc/fish/completions/appliance.fish"),
    ],
)
def test_shells_complete(untouched: Box, shell: str, file: str) -> None:
    """A completion for each shell is where that shell looks for it."""
    text = (untouched.root / file).read_text()
    assert "appliance" in text, shell


def test_the_manual_has_a_page_for_each_verb(untouched: Box) -> None:
    """The program man finds a page by the verb's name or its alias, and formats it without a warning."""
    for verb, file in (("switch", "switch"), ("ls", "list")):
        # Debian has /usr/local/man as a link to it.
        page = untouched.run(f"realpath $(man -w appliance-{verb})").stdout.strip()
        assert page == f"/usr/local/share/man/man1/appliance-{file}.1"
    shown = untouched.run("LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings appliance-ls 2>&1").stdout
    assert "appliance-list, appliance-ls" in shown
    assert "warning" not in shown


def test_bash_completes_verbs(untouched: Box) -> None:
    """Bash offers the verbs of the command line."""
    complete = (
        "source /usr/local/share/bash-completion/completions/appliance;"
        "COMP_LINE='appliance sw' COMP_POINT=12 COMP_TYPE=9;"
        "COMP_WORDS=(appliance sw) COMP_CWORD=1;"
        "_python_argcomplete_/opt/appliance/current/bin/appliance appliance; echo ${COMPREPLY[*]}"
    )
    assert "switch" in untouched.run(complete).stdout


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ("--frobnicate", 2, "usage"),
        ("--purge", 2, "usage"),
        ("--python /nowhere/python3", 1, "no /nowhere/python3"),
    ],
)
def test_wrong_use_changes_nothing(bare: Box, arguments: str, status: int, words: str) -> None:
    """A wrong call says what is wrong and installs nothing."""
    done = bare.run(f"{OFFLINE} {arguments}", check=False)
    assert done.returncode == status
    assert words in done.stderr
    assert not (bare.root / "opt/appliance/releases").exists()


def test_only_root_installs(untouched: Box) -> None:
    """Another user is told to use sudo, with the exit status for permission."""
    done = untouched.run(OFFLINE, user="appliance", check=False)
    assert (done.returncode, "sudo" in done.stderr) == (77, True)

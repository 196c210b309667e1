"""The static units: accepted by systemd, confined, and true to their promises."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from appliance.health.agent_failure import AGAIN_IN
from appliance.model import paths
from appliance.model.names import (
    AUDIT_SOCKET_UNIT,
    CHECK_SOCKET_UNIT,
    HEALTH_SOCKET_UNIT,
    HEALTH_USER,
    NOTIFIER_UNIT,
    NOTIFY_SOCKET_UNIT,
    REQUEST_SOCKET_UNIT,
    STATUS_SOCKET_UNIT,
    TOKEN_SOCKET_UNIT,
    VIEW_SOCKET_UNIT,
    WEB_SOCKET_UNIT,
    WEB_UNIT,
    WEB_USER,
)
from appliance.model.targets import Targets
from appliance.switch.units.daemon_drop_ins import KERNEL_SOCKET
from appliance.switch.units.text import sections_of
from appliance.system.targets_file import parse_targets

UNITS = Path(__file__).parents[2] / "units"
OURS = re.compile(r"/(?:etc|opt|run|var)/(?:[a-z]+/)?appliance[a-z/.-]*")
HOME_OF_ENGINES = "/var/lib/appliance-backend"
RUN = "appliance-run.service"
JOBS = "appliance-jobs.service"
SERVICES = sorted(p.name for p in UNITS.glob("*.service"))
needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="no systemd-analyze here: that systemd accepts the units is not shown",
)


def values(file: str, key: str, section: str) -> list[str]:
    """Every value of one key in a static unit."""
    found = (s for s in sections_of((UNITS / file).read_text()) if s.name == section)
    return [v for s in found for v in s.values(key)]


LIMITED = {
    "appliance-boot.service": "a oneshot of the boot, which nothing restarts",
    "appliance-health-failed.service": "a oneshot after the agent's own limit",
    "appliance-health.service": "its limit has people told without it, and a timer tries it again",
}
"""Services that systemd stops starting when they are started too often, with the reason."""


@pytest.mark.parametrize("file", [p.name for p in UNITS.iterdir() if p.suffix == ".socket"])
def test_no_limit_ends_a_socket(file: str) -> None:
    """Neither restarts of its service nor a burst of clients leave a socket failed for good."""
    assert values(file, "StartLimitIntervalSec", "Unit") == ["0"]
    assert values(file, "TriggerLimitIntervalSec", "Socket") == ["0"]


def test_services_with_a_start_limit_have_a_reason() -> None:
    """Any other service may be started as often as it is asked for."""
    limits = {file: values(file, "StartLimitIntervalSec", "Unit") for file in SERVICES}
    assert {file for file, limit in limits.items() if limit != ["0"]} == set(LIMITED)


def test_the_set_of_files_is_complete() -> None:
    """The set of files is what install.sh copies, not one file more or less."""
    assert sorted(p.name for p in UNITS.iterdir()) == [
        "appliance-apply.service",
        "appliance-auditor.service",
        "appliance-auditor.socket",
        "appliance-boot.service",
        "appliance-checker.service",
        "appliance-checker.socket",
        "appliance-gateway.service",
        "appliance-gateway.socket",
        "appliance-health-again.timer",
        "appliance-health-failed.service",
        "appliance-health.service",
        "appliance-health.socket",
        "appliance-hold.service",
        "appliance-jobs.service",
        "appliance-jobs.socket",
        "appliance-lane.socket",
        "appliance-notifier.service",
        "appliance-notifier.socket",
        "appliance-prompt.socket",
        "appliance-request.socket",
        "appliance-run.service",
        "appliance-status.socket",
        "appliance-supervisor.service",
        "appliance-supervisor.socket",
        "appliance-token.socket",
        "appliance-view.socket",
        "appliance-web.service",
        "appliance-web.socket",
        "appliance.catalog",
        "appliance.slice",
        "appliance.sysusers.conf",
        "appliance.tmpfiles.conf",
    ]


@pytest.mark.parametrize("file", sorted(UNITS.iterdir()), ids=lambda path: path.name)
def test_static_files_name_the_default_paths(file: Path) -> None:
    """Every path of ours in a static file is a default of the code's, or a directory above one."""
    defaults = [v for name, v in vars(paths).items() if name.isupper() and isinstance(v, str)]
    for found in OURS.findall(file.read_text()):
        ours = found.startswith(f"{paths.PREFIX}/") or found == HOME_OF_ENGINES
        assert ours or any(f"{d}/".startswith(f"{found}/") for d in defaults), found


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units for a prefix that exists here, so that systemd finds the interpreter."""
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to("/bin/true")
    units = tmp_path / "units"
    units.mkdir()
    for file in [
        f for kind in ("service", "socket", "slice", "timer") for f in UNITS.glob(f"*.{kind}")
    ]:
        (units / file.name).write_text(file.read_text().replace(paths.PREFIX, str(prefix)))
    return units


def analyze(*arguments: str | Path) -> str:
    """Return what systemd-analyze writes to stderr; it must succeed."""
    command = ["systemd-analyze", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@needs_systemd_analyze
def test_systemd_accepts_them_all(installed: Path) -> None:
    """`systemd-analyze verify` is silent, also about units that refer to each other."""
    assert analyze("verify", *sorted(installed.iterdir())) == ""


@needs_systemd_analyze
@pytest.mark.parametrize("service", [s for s in SERVICES if s != RUN])
def test_every_service_is_confined(service: str, installed: Path) -> None:
    """Exposure is at most 3.0, for the short root programs too; people's commands are their own."""
    analyze("security", "--offline=yes", "--threshold=30", "--no-pager", installed / service)


@pytest.mark.parametrize("service", [s for s in SERVICES if s != "appliance-hold.service"])
def test_the_journal_shows_who_speaks(service: str) -> None:
    """Lines in the journal carry the unit's name, not that of an interpreter."""
    assert values(service, "SyslogIdentifier", "Service") == [service.removesuffix(".service")]


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_of_ours_binds_a_model_to_another_unit(service: str) -> None:
    """A supervisor that dies, stops or is upgraded takes no model with it."""
    for key in ("Requires", "BindsTo", "PartOf", "Upholds", "Requisite", "Conflicts"):
        assert values(service, key, "Unit") == []


def test_the_hold_has_no_order_of_its_own() -> None:
    """Backends come after the hold; the other way round too would be a cycle."""
    assert values("appliance-hold.service", "After", "Unit") == []
    assert values("appliance-hold.service", "Before", "Unit") == []
    assert values("appliance-hold.service", "RemainAfterExit", "Service") == ["yes"]


def test_who_starts_at_boot() -> None:
    """The supervisor, the gateway, their sockets and the boot program; never the hold or apply."""
    wanted = {p.name: values(p.name, "WantedBy", "Install") for p in UNITS.glob("appliance*")}
    assert {name: by for name, by in wanted.items() if by} == {
        "appliance-auditor.socket": ["sockets.target"],
        "appliance-boot.service": ["multi-user.target"],
        "appliance-checker.socket": ["sockets.target"],
        "appliance-gateway.service": ["multi-user.target"],
        "appliance-gateway.socket": ["sockets.target"],
        "appliance-health.service": ["multi-user.target"],
        "appliance-health.socket": ["sockets.target"],
        "appliance-jobs.socket": ["sockets.target"],
        "appliance-lane.socket": ["sockets.target"],
        "appliance-notifier.socket": ["sockets.target"],
        "appliance-prompt.socket": ["sockets.target"],
        "appliance-request.socket": ["sockets.target"],
        "appliance-status.socket": ["sockets.target"],
        "appliance-supervisor.service": ["multi-user.target"],
        "appliance-supervisor.socket": ["sockets.target"],
        "appliance-token.socket": ["sockets.target"],
        "appliance-view.socket": ["sockets.target"],
        "appliance-web.socket": ["sockets.target"],
    }


def test_root_programs_run_isolated() -> None:
    """-I: neither the environment nor a working directory chooses what root imports."""
    for service in ("appliance-apply.service", "appliance-boot.service", JOBS, RUN):
        assert values(service, "User", "Service") == []
        assert values(service, "ExecStart", "Service")[0].startswith(
            f"{paths.PREFIX}/bin/python -I -m "
        )


def test_a_command_gets_nothing_from_its_unit() -> None:
    """No user, privilege, credential, file system or device of its own: the launcher decides."""
    shaping = {"User", "Group", "SupplementaryGroups", "AmbientCapabilities", "LoadCredential"}
    (service,) = (s for s in sections_of((UNITS / RUN).read_text()) if s.name == "Service")
    keys = {key for key, _ in service.entries}
    assert not keys & {*shaping, "PAMName", "Environment", "EnvironmentFile", "Delegate"}
    assert not {k for k in keys if k.startswith(("Private", "Protect", "Restrict", "Bind"))}


def test_a_command_dies_with_its_unit() -> None:
    """No process of it survives its launcher, and nothing starts it again."""
    assert values(RUN, "KillMode", "Service") == ["control-group"]
    assert values(RUN, "SendSIGKILL", "Service") == []
    assert values(RUN, "Restart", "Service") == ["no"]
    assert values(RUN, "NotifyAccess", "Service") == ["main"]


def test_the_supervisor_comes_back_for_ever() -> None:
    """No start limit, a watchdog, and no privilege."""
    name = "appliance-supervisor.service"
    assert values(name, "Restart", "Service") == ["always"]
    assert values(name, "StartLimitIntervalSec", "Unit") == ["0"]
    assert values(name, "WatchdogSec", "Service") == ["30s"]
    assert values(name, "User", "Service") == ["appliance"]
    assert values(name, "CapabilityBoundingSet", "Service") == [""]


def test_the_control_socket_outlives_the_supervisor() -> None:
    """The socket's directory is not the service's, so that no stop of the service removes it."""
    assert values("appliance-supervisor.socket", "SocketMode", "Socket") == ["0660"]
    assert values("appliance-supervisor.socket", "SocketGroup", "Socket") == ["appliance-operators"]
    own = values("appliance-supervisor.service", "RuntimeDirectory", "Service")
    assert own == ["appliance-supervisor"]


def test_what_runs_is_remembered_over_the_supervisors_death() -> None:
    """The directory in memory outlives the supervisor's end or death, but not the boot."""
    kept = values("appliance-supervisor.service", "RuntimeDirectoryPreserve", "Service")
    assert kept == ["yes"]


GATEWAY = "appliance-gateway.service"
SUPERVISOR = "appliance-supervisor.service"


def exposure(unit: Path) -> float:
    """Return systemd's rating of a service's sandbox: 0 is closed, 10 is open."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    return float(done.stdout.rpartition(": ")[2].split()[0])


@needs_systemd_analyze
def test_the_gateway_is_confined_as_the_supervisor_is(installed: Path) -> None:
    """Although it may be reached from other machines, and the supervisor not."""
    own = exposure(installed / GATEWAY)
    assert own <= exposure(installed / "appliance-supervisor.service")


def test_the_gateway_comes_back_for_ever() -> None:
    """At once, without a limit, and watched."""
    assert values(GATEWAY, "Restart", "Service") == ["always"]
    assert values(GATEWAY, "StartLimitIntervalSec", "Unit") == ["0"]
    assert values(GATEWAY, "RestartSec", "Service") == ["100ms"]
    assert values(GATEWAY, "WatchdogSec", "Service") == ["30s"]


def test_the_gateway_hands_over_on_a_reload() -> None:
    """By a signal, in the form that systemd 252 knows; both processes are told of a stop."""
    assert values(GATEWAY, "Type", "Service") == ["notify"]
    assert values(GATEWAY, "NotifyAccess", "Service") == ["main"]
    assert values(GATEWAY, "ExecReload", "Service") == ["/bin/kill -HUP $MAINPID"]
    assert values(GATEWAY, "KillMode", "Service") == ["control-group"]
    assert int(values(GATEWAY, "FileDescriptorStoreMax", "Service")[0]) >= 64


def test_the_gateways_address_is_loopback_until_settings_say_otherwise() -> None:
    """And its other door is for the supervisor's user alone."""
    socket = "appliance-gateway.socket"
    assert values(socket, "ListenStream", "Socket") == [
        *("127.0.0.1:8010", "[::1]:8010"),
        paths.GATEWAY_SOCKET,
    ]
    assert values(socket, "SocketMode", "Socket") == ["0600"]
    assert values(socket, "SocketUser", "Socket") == values(SUPERVISOR, "User", "Service")
    assert values(socket, "FreeBind", "Socket") == ["yes"]
    assert values(socket, "TriggerLimitIntervalSec", "Socket") == ["0"]


def test_the_lane_is_for_the_health_agent_alone() -> None:
    """The lane's socket belongs to systemd as the other, and the gateway gets both when it starts."""
    socket = "appliance-lane.socket"
    assert values(socket, "ListenStream", "Socket") == [paths.LANE_SOCKET]
    assert values(socket, "SocketUser", "Socket") == ["appliance-health"]
    assert values(socket, "SocketMode", "Socket") == ["0600"]
    assert values(socket, "Service", "Socket") == [GATEWAY]
    assert values(socket, "PartOf", "Unit") == ["appliance-gateway.socket"]
    for key in ("Wants", "After"):
        assert values(GATEWAY, key, "Unit") == [
            f"appliance-gateway.socket {socket} appliance-prompt.socket"
        ]


def test_prompts_come_from_the_web_process_alone() -> None:
    """A client there needs no inference key, so no other user may connect."""
    socket = "appliance-prompt.socket"
    assert values(socket, "ListenStream", "Socket") == [paths.PROMPT_SOCKET]
    assert values(socket, "SocketUser", "Socket") == values(
        "appliance-web.service", "User", "Service"
    )
    assert values(socket, "SocketMode", "Socket") == ["0600"]
    assert values(socket, "Service", "Socket") == [GATEWAY]
    assert values(socket, "PartOf", "Unit") == ["appliance-gateway.socket"]


def test_the_gateway_shares_no_user_with_the_supervisor_and_is_no_operator() -> None:
    """One uid for two daemons is one daemon; its own socket offers what it may ask."""
    users = {n: values(n, "User", "Service") for n in (GATEWAY, SUPERVISOR)}
    assert users == {GATEWAY: ["appliance-gateway"], SUPERVISOR: ["appliance"]}
    assert values(GATEWAY, "SupplementaryGroups", "Service") == ["appliance appliance-backend"]
    request = "appliance-request.socket"
    assert values(request, "SocketUser", "Socket") == users[GATEWAY]
    assert values(request, "SocketMode", "Socket") == ["0600"]
    assert values(request, "PartOf", "Unit") == ["appliance-supervisor.socket"]
    assert values(request, "Service", "Socket") == [SUPERVISOR]
    assert request == REQUEST_SOCKET_UNIT
    assert values(request, "ListenStream", "Socket") == [paths.REQUEST_SOCKET]


def test_operators_tokens_are_presented_by_the_web_process_alone() -> None:
    """No other daemon that may see a token, such as the health agent, can open the socket that takes it."""
    assert values(TOKEN_SOCKET_UNIT, "SocketUser", "Socket") == [WEB_USER]
    assert values(TOKEN_SOCKET_UNIT, "SocketGroup", "Socket") == ["root"]
    assert values(TOKEN_SOCKET_UNIT, "SocketMode", "Socket") == ["0600"]
    assert values(TOKEN_SOCKET_UNIT, "PartOf", "Unit") == ["appliance-supervisor.socket"]
    assert values(TOKEN_SOCKET_UNIT, "Service", "Socket") == [SUPERVISOR]
    assert values(TOKEN_SOCKET_UNIT, "ListenStream", "Socket") == [paths.TOKEN_SOCKET]


def test_the_status_is_for_a_group_without_rights() -> None:
    """The status socket goes with the supervisor, which clients that come back would otherwise start."""
    assert values(STATUS_SOCKET_UNIT, "SocketGroup", "Socket") == ["appliance-status"]
    assert values(STATUS_SOCKET_UNIT, "SocketMode", "Socket") == ["0660"]
    assert values(STATUS_SOCKET_UNIT, "ListenStream", "Socket") == [paths.STATUS_SOCKET]
    assert values(STATUS_SOCKET_UNIT, "Service", "Socket") == [SUPERVISOR]
    assert values(STATUS_SOCKET_UNIT, "PartOf", "Unit") == [
        f"appliance-supervisor.socket {SUPERVISOR}"
    ]


HEALTH = "appliance-health.service"
NOTIFIER = "appliance-notifier.service"


def test_the_notifier_has_the_targets_and_nobody_else() -> None:
    """The file with the secrets is a credential of one unit, whose cores are off; without a file it starts."""
    by_unit = {name: values(name, "LoadCredential", "Service") for name in SERVICES}
    assert {name: given for name, given in by_unit.items() if given} == {
        NOTIFIER: [f"targets:{paths.TARGETS_FILE}"]
    }
    (default,) = values(NOTIFIER, "SetCredential", "Service")
    assert parse_targets(default.removeprefix("targets:").encode()) == Targets()
    assert values(NOTIFIER, "LimitCORE", "Service") == ["0"]
    assert values(NOTIFIER, "User", "Service") == ["appliance-notifier"]
    assert values(NOTIFIER, "SupplementaryGroups", "Service") == []


def test_messages_are_sent_for_the_health_agent_alone() -> None:
    """The notifier's socket is the agent's, starts the notifier, and is never given up."""
    assert values(NOTIFY_SOCKET_UNIT, "ListenStream", "Socket") == [paths.NOTIFY_SOCKET]
    assert values(NOTIFY_SOCKET_UNIT, "SocketUser", "Socket") == [HEALTH_USER]
    assert values(NOTIFY_SOCKET_UNIT, "SocketMode", "Socket") == ["0600"]
    assert values(NOTIFY_SOCKET_UNIT, "TriggerLimitIntervalSec", "Socket") == ["0"]
    assert values(NOTIFIER, "StartLimitIntervalSec", "Unit") == ["0"]
    assert values(NOTIFIER, "Restart", "Service") == ["on-failure"]
    assert values(NOTIFIER, "WantedBy", "Install") == []


@needs_systemd_analyze
def test_the_notifier_is_confined_as_the_gateway_is(installed: Path) -> None:
    """Both reach other machines; neither has anything else that the other lacks."""
    assert exposure(installed / NOTIFIER) <= exposure(installed / GATEWAY)


@needs_systemd_analyze
def test_the_health_agent_is_confined_most(installed: Path) -> None:
    """The agent has no network, no device and no home, unlike the gateway and the supervisor."""
    assert exposure(installed / HEALTH) <= exposure(installed / GATEWAY)
    assert values(HEALTH, "RestrictAddressFamilies", "Service") == ["AF_UNIX"]
    assert values(HEALTH, "PrivateNetwork", "Service") == ["yes"]


def test_the_health_agent_has_no_right_to_anything() -> None:
    """The agent's user is neither an operator nor another daemon's, and no group gives it a file of theirs."""
    assert values(HEALTH, "User", "Service") == [HEALTH_USER]
    assert values(HEALTH, "SupplementaryGroups", "Service") == ["appliance-status"]
    assert values(HEALTH, "CapabilityBoundingSet", "Service") == [""]


def test_the_health_agent_needs_nobody_and_comes_back_for_ever() -> None:
    """The agent waits for neither supervisor nor gateway, and its socket goes with it when it is stopped."""
    assert values(HEALTH, "Wants", "Unit") == [f"{HEALTH_SOCKET_UNIT} {VIEW_SOCKET_UNIT}"]
    assert values(HEALTH, "After", "Unit")[0].split() == [
        HEALTH_SOCKET_UNIT,
        VIEW_SOCKET_UNIT,
        "dbus.service",
        NOTIFY_SOCKET_UNIT,
        NOTIFIER_UNIT,
    ]
    assert values(HEALTH, "Restart", "Service") == ["always"]
    assert values(HEALTH, "WatchdogSec", "Service") == ["30s"]
    assert values(HEALTH, "MemoryMax", "Service") == ["256M"]
    assert values(HEALTH_SOCKET_UNIT, "PartOf", "Unit") == [HEALTH]
    assert values(HEALTH_SOCKET_UNIT, "SocketMode", "Socket") == ["0660"]
    assert values(HEALTH_SOCKET_UNIT, "SocketGroup", "Socket") == ["appliance-operators"]
    assert values(HEALTH_SOCKET_UNIT, "ListenStream", "Socket") == [paths.HEALTH_SOCKET]


def test_an_agent_that_systemd_gives_up_is_told_of_and_tried_again() -> None:
    """The count of starts is over when the timer starts it; the message needs the notifier alone."""
    failed, again = "appliance-health-failed.service", "appliance-health-again.timer"
    assert values(HEALTH, "OnFailure", "Unit") == [f"{failed} {again}"]
    assert values(HEALTH, "StartLimitBurst", "Unit") == ["10"]
    assert values(HEALTH, "StartLimitIntervalSec", "Unit") == ["10min"]
    assert values(again, "OnActiveSec", "Timer") == [AGAIN_IN.replace(" ", "")] == ["15min"]
    assert values(again, "RemainAfterElapse", "Timer") == ["no"]
    assert values(again, "Unit", "Timer") == [HEALTH]
    for key in ("User", "StateDirectory", "PrivateNetwork", "RestrictAddressFamilies"):
        assert values(failed, key, "Service") == values(HEALTH, key, "Service")
    assert values(failed, "TimeoutStartSec", "Service") == ["20min"]


def test_what_the_agent_lets_others_read_goes_with_it() -> None:
    """The socket for processes that only look is the status group's, and is the agent's second one."""
    assert values(VIEW_SOCKET_UNIT, "ListenStream", "Socket") == [paths.VIEW_SOCKET]
    assert values(VIEW_SOCKET_UNIT, "Service", "Socket") == [HEALTH]
    assert values(VIEW_SOCKET_UNIT, "PartOf", "Unit") == [HEALTH]
    assert values(VIEW_SOCKET_UNIT, "SocketMode", "Socket") == ["0660"]
    assert values(VIEW_SOCKET_UNIT, "SocketGroup", "Socket") == ["appliance-status"]


def test_the_status_api_is_reached_on_this_machine_and_reaches_nobody() -> None:
    """The socket is systemd's, on loopback; the process has no network of its own and no rights but to look."""
    assert values(WEB_SOCKET_UNIT, "ListenStream", "Socket") == ["127.0.0.1:8011", "[::1]:8011"]
    assert values(WEB_SOCKET_UNIT, "ListenNetlink", "Socket") == [KERNEL_SOCKET]
    assert values(WEB_SOCKET_UNIT, "IPAddressDeny", "Socket") == ["any"]
    assert values(WEB_SOCKET_UNIT, "IPAddressAllow", "Socket") == ["localhost"]
    assert values(WEB_SOCKET_UNIT, "TriggerLimitIntervalSec", "Socket") == ["0"]
    assert values(WEB_UNIT, "User", "Service") == [WEB_USER]
    assert values(WEB_UNIT, "SupplementaryGroups", "Service") == ["appliance-status"]
    assert values(WEB_UNIT, "PrivateNetwork", "Service") == ["yes"]
    assert values(WEB_UNIT, "RestrictAddressFamilies", "Service") == ["AF_UNIX"]
    assert values(WEB_UNIT, "CapabilityBoundingSet", "Service") == [""]
    assert values(WEB_UNIT, "Restart", "Service") == ["on-failure"]
    assert values(WEB_UNIT, "WantedBy", "Install") == []


@needs_systemd_analyze
def test_the_status_api_is_confined_as_the_health_agent_is(installed: Path) -> None:
    """The process that strangers' pages may try to reach has nothing that the agent lacks."""
    assert exposure(installed / WEB_UNIT) <= exposure(installed / HEALTH)


AUDITOR = "appliance-auditor.service"
CHECKER = "appliance-checker.service"
HELPERS = {
    AUDITOR: (AUDIT_SOCKET_UNIT, paths.AUDIT_SOCKET),
    CHECKER: (CHECK_SOCKET_UNIT, paths.CHECK_SOCKET),
}


@pytest.mark.parametrize("service", HELPERS)
def test_a_helper_of_the_health_agent_answers_it_alone(service: str) -> None:
    """Auditor and checker are started by their sockets, which the agent's user alone may open."""
    socket, path = HELPERS[service]
    assert values(socket, "SocketUser", "Socket") == [HEALTH_USER]
    assert values(socket, "SocketMode", "Socket") == ["0600"]
    assert values(socket, "ListenStream", "Socket") == [path]
    assert values(service, "User", "Service") == [service.removesuffix(".service")]
    assert values(service, "SupplementaryGroups", "Service") == []
    assert values(service, "WantedBy", "Install") == []
    assert values(service, "Restart", "Service") == ["on-failure"]


@needs_systemd_analyze
@pytest.mark.parametrize("service", HELPERS)
def test_a_helper_is_confined_as_the_gateway_is(service: str, installed: Path) -> None:
    """The auditor's rights to look at processes do not make its sandbox weaker than 2.0."""
    assert exposure(installed / service) <= 2.0


def test_the_auditor_has_no_way_out() -> None:
    """The process that sees all descriptors has no network, and may make and connect no socket."""
    assert values(AUDITOR, "PrivateNetwork", "Service") == ["yes"]
    assert values(AUDITOR, "RestrictAddressFamilies", "Service") == ["AF_UNIX"]
    for key in ("CapabilityBoundingSet", "AmbientCapabilities"):
        assert values(AUDITOR, key, "Service") == ["CAP_SYS_PTRACE CAP_DAC_READ_SEARCH"]
    refused = " ".join(values(AUDITOR, "SystemCallFilter", "Service")[1:]).replace("~", "").split()
    assert {"socket", "connect", "bind", "ptrace", "process_vm_readv", "pidfd_getfd"} <= {*refused}


def test_the_checker_reaches_others_and_has_nothing_to_tell_them() -> None:
    """The process that asks other machines has no capability, no credential, no state and no way to the bus."""
    assert values(CHECKER, "CapabilityBoundingSet", "Service") == [""]
    assert values(CHECKER, "LoadCredential", "Service") == []
    assert values(CHECKER, "StateDirectory", "Service") == []
    (hidden,) = values(CHECKER, "InaccessiblePaths", "Service")
    assert {"-/run/dbus", "-/etc/appliance", "-/var/lib/appliance"} <= {*hidden.split()}


def test_jobs_are_queued_for_the_supervisor_alone() -> None:
    """The program of root that queues them answers one user; it is started by its socket."""
    socket = JOBS.replace(".service", ".socket")
    assert values(socket, "SocketUser", "Socket") == values(SUPERVISOR, "User", "Service")
    assert values(socket, "SocketMode", "Socket") == ["0600"]
    assert values(socket, "ListenStream", "Socket") == [paths.JOBS_SOCKET]
    assert values(JOBS, "WantedBy", "Install") == []


def test_the_gateways_memory_outlives_it() -> None:
    """The last state that the gateway was sent is there for its next process."""
    assert values(GATEWAY, "RuntimeDirectory", "Service") == ["appliance-gateway"]
    assert values(GATEWAY, "RuntimeDirectoryPreserve", "Service") == ["yes"]


def run(root: Path, *command: str | Path) -> None:
    """Run a systemd tool on another root."""
    done = subprocess.run(
        [command[0], f"--root={root}", *command[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "ignoring" not in done.stderr.lower(), done.stderr


@pytest.mark.skipif(
    shutil.which("systemd-sysusers") is None or shutil.which("systemd-tmpfiles") is None,
    reason="no systemd-sysusers or systemd-tmpfiles: that they accept the files is not shown",
)
def test_users_and_directories_are_made(tmp_path: Path) -> None:
    """On an empty root the users exist and every directory has its mode."""
    (tmp_path / "etc").mkdir()
    run(tmp_path, "systemd-sysusers", UNITS / "appliance.sysusers.conf")
    names = {line.split(":")[0] for line in (tmp_path / "etc/group").read_text().splitlines()}
    own = {"appliance", "appliance-gateway", "appliance-health", "appliance-backend"}
    own |= {"appliance-auditor", "appliance-checker", "appliance-operators", "appliance-status"}
    own |= {"appliance-notifier", "appliance-web"}
    assert own | {"render", "video"} <= names
    if not can_chown(tmp_path):
        pytest.skip("not root: that the directories get their owners is not shown")
    run(tmp_path, "systemd-tmpfiles", "--create", UNITS / "appliance.tmpfiles.conf")
    users = dict(
        line.split(":")[0:3:2] for line in (tmp_path / "etc/passwd").read_text().splitlines()
    )
    state = (tmp_path / "var/lib/appliance").stat()
    assert state.st_uid == int(users["appliance"])
    for path in ("var/lib/appliance-applied", "etc/appliance/profiles", "run/appliance-leases"):
        made = (tmp_path / path).stat()
        assert (made.st_uid, made.st_mode & 0o777) == (0, 0o755)
    targets = (tmp_path / paths.TARGETS_FILE.lstrip("/")).stat()
    assert (targets.st_uid, targets.st_mode & 0o777) == (0, 0o600)


def can_chown(directory: Path) -> bool:
    """Whether this process may give files away."""
    file = directory / "probe"
    file.touch()
    try:
        shutil.chown(file, 12345)
    except PermissionError:
        return False
    return True


@pytest.mark.parametrize("socket", ["appliance-gateway.socket", WEB_SOCKET_UNIT])
def test_an_address_of_ipv6_costs_no_box_without_it_its_socket(socket: str) -> None:
    """An address of loopback that is off (net.ipv6.conf.lo.disable_ipv6) is bound all the same, apart from IPv4's."""
    assert values(socket, "FreeBind", "Socket") == ["yes"]
    assert values(socket, "BindIPv6Only", "Socket") == ["ipv6-only"]

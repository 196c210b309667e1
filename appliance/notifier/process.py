"""Process of the notifier: reads its credential, answers, and leaves when idle.

A file of targets that cannot be read does not keep it from its work: systemd would start it again and
again for the same request. Every request is then answered with what is wrong.
"""

import logging
import os
import sys
from asyncio import FIRST_COMPLETED, create_task, wait
from functools import partial
from pathlib import Path
from typing import Final

from appliance.daemon_main import ToldToEndError, run_daemon, until_told
from appliance.model.errors import UnitError
from appliance.model.names import NOTIFY_SOCKET_UNIT
from appliance.model.paths import TARGETS_FILE
from appliance.model.service_lines import leaving_line
from appliance.model.targets import Targets
from appliance.notifier.notify_verbs import NotifyVerbs
from appliance.settings.tables import Settings
from appliance.system.files.regular import read_small_file
from appliance.system.systemd.daemon import Readiness, named_sockets
from appliance.system.targets_file import parse_targets
from appliance.system.toml.file import MAX_BYTES, FaultyFileError, fault_lines

_log = logging.getLogger(__name__)

IDLE_S: Final = 60.0
_CREDENTIAL: Final = "targets"
"""Name in LoadCredential= of the unit."""


async def run(_settings: Settings, *, idle_s: float = IDLE_S) -> None:
    """Answer until idle, SIGTERM or SIGINT. Raises `UnitError`."""
    listener = named_sockets().get(NOTIFY_SOCKET_UNIT)
    if listener is None:
        raise UnitError(f"no socket was passed: systemctl start {NOTIFY_SOCKET_UNIT}")
    targets, trouble = read_credential()
    if trouble:
        _log.error("%s", trouble)
    readiness = Readiness()
    verbs = NotifyVerbs(targets, trouble, readiness.tell)
    served = create_task(verbs.serve(listener, idle_s=idle_s))
    told = create_task(until_told(readiness))
    readiness.ready()
    done, pending = await wait({served, told}, return_when=FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await wait({served, told})
    try:
        for task in done:
            task.result()
        readiness.tell(leaving_line(idle_s))
    except ToldToEndError:
        _log.debug("the notifier ends")


def read_credential() -> tuple[Targets, str]:
    """Return the targets that systemd passed, and what is wrong with them; no value of theirs."""
    path = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent")) / _CREDENTIAL
    try:
        return parse_targets(read_small_file(path, MAX_BYTES)), ""
    except FaultyFileError as error:
        return Targets(), fault_lines(TARGETS_FILE, error.faults).replace("\n", "; ")
    except OSError as error:
        return Targets(), f"no targets were passed: {error.strerror}"


def main() -> int:
    """Run the notifier; returns its exit status. One argument is the seconds after which it leaves."""
    idle_s = float(sys.argv[1]) if len(sys.argv) > 1 else IDLE_S
    return run_daemon(partial(run, idle_s=idle_s))

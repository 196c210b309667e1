"""Status API against its own OpenAPI document, with made requests on a booted box: ``make check-api`` (root).

First come requests that must be refused (`tests.bench.api_refusals`). Then schemathesis, which is installed in .cache
on the first run, reads the document from the running process and makes requests from it, valid and invalid ones, with an
operator's token. Every response must have a status, a content type
and a schema that the document names, and none may be a server error. The stream is left out: it does not end.

The last line is JSON: ``refused``, ``operations``, ``cases``, ``failures``, ``seconds``.
"""

import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any, Final

from tests.bench.api_refusals import TOKEN_VARIABLE
from tests.bench.machine import installed, report, say
from tests.programs import ROOT
from tests.system.fleet import OPERATOR, Fleet

VERSION: Final = "4.32.5"
EXAMPLES: Final = 250
"""Most requests of each kind for an operation."""
FEWEST_CASES: Final = 5000
CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
_AT: Final = "http://127.0.0.1:8011"
_CACHE: Final = ROOT / ".cache/check-api"
_CONFIG: Final = f"""
[headers]
Authorization = "Bearer ${{{TOKEN_VARIABLE}}}"
"""
"""The token is no argument: those are for everybody to read."""


def main() -> int:
    """Run the check; the exit status is 1 where a response broke a rule, or too few were asked for."""
    program = environment()
    with installed() as fleet:
        token = furnish(fleet)
        inside = ["nsenter", f"--net=/proc/{fleet.box.leader}/ns/net"]
        variables = {**os.environ, TOKEN_VARIABLE: token, "NO_COLOR": "1"}
        refusals = json.loads(
            subprocess.run(
                [*inside, sys.executable, "-m", "tests.bench.api_refusals"],
                cwd=ROOT,
                env=variables,
                check=False,
                capture_output=True,
            ).stdout
        )
        for fault in refusals["faults"]:
            say(fault)
        began_s = time.monotonic()
        found = _CACHE / "report.json"
        found.unlink(missing_ok=True)
        config = _CACHE / "schemathesis.toml"
        config.write_text(_CONFIG, "utf-8")
        done = subprocess.run(
            [
                *inside,
                str(program),
                f"--config-file={config}",
                "run",
                f"{_AT}/api/v1/openapi.json",
                f"--checks={','.join(CHECKS)}",
                f"--max-examples={EXAMPLES}",
                "--exclude-path=/api/v1/stream",
                "--phases=examples,coverage,fuzzing",
                "--continue-on-failure",
                "--request-timeout=40",
                "--seed=1",
                "--report=json",
                f"--report-json-path={found}",
            ],
            cwd=_CACHE,  # it keeps a directory of its own
            env=variables,
            check=False,
        )
        say(fleet.box.journal("-u", "appliance-web", "-p", "warning", "-n", "20"))
        seconds = time.monotonic() - began_s
    figures = figures_of(json.loads(found.read_bytes()))
    report({"refused": refusals["refused"], **figures, "seconds": seconds})
    is_bad = done.returncode or refusals["faults"] or figures["cases"] < FEWEST_CASES
    return int(bool(is_bad))


def environment() -> Path:
    """Return the program schemathesis, installed if need be."""
    program = _CACHE / "venv/bin/schemathesis"
    if not program.exists():
        venv.create(_CACHE / "venv", with_pip=True)
        pip = [str(_CACHE / "venv/bin/python"), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, f"schemathesis=={VERSION}"], check=True)
    return program


def furnish(fleet: Fleet) -> str:
    """Have something to tell of everything that the API tells; return an operator's token."""
    fleet.people()
    fleet.switch("a")
    fleet.switch("b")
    fleet.box.run(
        "appliance mark b live; appliance alerts silence a --for 1h --reason check", check=False
    )
    fleet.box.wait_for(f"curl -fsS -m 5 {_AT}/livez", timeout_s=30)
    command = ("runuser", "-u", OPERATOR, "--", "appliance", "token", "add", "check")
    return fleet.box.run(*command).stdout.strip()


def figures_of(document: dict[str, Any]) -> dict[str, float]:
    """Return the figures of a report of schemathesis; says what failed."""
    for failure in (*document["failures"], *document["errors"]):
        say(json.dumps(failure))
    cases = document["test_cases"]
    return {
        "operations": document["operations"]["tested"],
        "cases": cases["generated"],
        "failures": cases["with_failures"] + cases["errored"],
    }


if __name__ == "__main__":
    sys.exit(main())

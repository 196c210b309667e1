"""Requests that the status API must refuse, sent to the running process: ``make check-api`` runs this in the box's network.

Every operation of the OpenAPI document is asked under a host name of another machine (DNS rebinding), each that changes
something also from a page of another origin, without a token, with a wrong one, with a body that is too large, and
with one that is no JSON; and the server with bytes that are no HTTP. Each answer must be problem+json with the
status of the refusal, the headers of every answer, and none of CORS.

Standard output is JSON: ``refused``, the number of refusals, and ``faults``, sentences.
"""

import http.client
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

HOST: Final = "127.0.0.1"
PORT: Final = 8011
TOKEN_VARIABLE: Final = "APPLIANCE_TOKEN"  # noqa: S105 - the variable's name
_DOCUMENT: Final = "/api/v1/openapi.json"
_SAFE: Final = ("get", "head")
_MOST_BODY: Final = 64 << 10
_WITHIN_S: Final = 40.0
_PROBLEM_KEYS: Final = {"type", "title", "status", "detail", "hint"}
_GARBAGE: Final = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"GET / FTP/9\r\n\r\n",
    b"\r\n \r\n\r\n",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileRequest:
    """Request that must be refused."""

    why: str
    method: str
    path: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def hostile_requests(document: Mapping[str, Any], token: str) -> Iterator[HostileRequest]:
    """Yield the requests for each operation of an OpenAPI document.

    Args:
        document: The document.
        token: Token of an operator.
    """
    bearer = {"Authorization": f"Bearer {token}"}
    for template, operations in document["paths"].items():
        for method, operation in operations.items():
            path = _filled(template, operation)
            rebound = {"Host": "attacker.example:8011", **bearer}
            yield HostileRequest(
                why="DNS rebinding", method=method, path=path, status=403, headers=rebound
            )
            if method in _SAFE:
                continue
            for name, value in (
                ("Origin", "http://attacker.example"),
                ("Origin", "null"),
                ("Sec-Fetch-Site", "cross-site"),
            ):
                yield HostileRequest(
                    why=f"{name}: {value}",
                    method=method,
                    path=path,
                    status=403,
                    headers={name: value, **bearer},
                )
            yield HostileRequest(
                why="large body",
                method=method,
                path=path,
                status=413,
                headers=bearer,
                body=b"[" * (_MOST_BODY + 1),
            )
            if operation.get("security"):
                yield HostileRequest(
                    why="no token", method=method, path=path, status=401, body=b"{}"
                )
                yield HostileRequest(
                    why="wrong token",
                    method=method,
                    path=path,
                    status=401,
                    headers={"Authorization": "Bearer nonsense"},
                    body=b"{}",
                )
            if "requestBody" in operation:
                json_type = {"Content-Type": "application/json", **bearer}
                for body in (
                    b'{"profile": ',
                    b"\xff\xfe",
                    b"[" * 20_000,
                    b"[]",
                    b'{"profile": NaN, "more": 1}',
                ):
                    yield HostileRequest(
                        why=f"malformed body {body[:12]!r}",
                        method=method,
                        path=path,
                        status=422,
                        headers=json_type,
                        body=body,
                    )


def _filled(template: str, operation: Mapping[str, Any]) -> str:
    """Return the path of an operation with its parameters' examples, or names of nothing."""
    path = template
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            examples = parameter["schema"].get("examples") or [parameter.get("example", "nothing")]
            path = path.replace("{" + parameter["name"] + "}", str(examples[0]))
    return path


def faults_of(request: HostileRequest) -> Iterator[str]:
    """Send a request; yield what is wrong with its refusal."""
    connection = http.client.HTTPConnection(HOST, PORT, timeout=_WITHIN_S)
    try:
        connection.request(
            request.method.upper(), request.path, request.body or None, dict(request.headers)
        )
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        yield f"no answer: {error!r}"
        return
    finally:
        connection.close()
    if response.status != request.status:
        yield f"{response.status} and not {request.status}: {body[:200]!r}"
    headers = {name.lower(): value for name, value in response.getheaders()}
    yield from _faults_of_problem(headers, body, response.status)
    lacking = {"content-security-policy", "x-content-type-options"} - headers.keys()
    yield from (f"has no {name}" for name in sorted(lacking))


def _faults_of_problem(headers: Mapping[str, str], body: bytes, status: int) -> Iterator[str]:
    if headers.get("content-type") != "application/problem+json":
        yield f"is {headers.get('content-type')}"
        return
    yield from (f"has {name}" for name in headers if name.startswith("access-control-"))
    problem = json.loads(body)
    if problem.keys() != _PROBLEM_KEYS or problem["status"] != status or not problem["detail"]:
        yield f"is no whole problem: {problem}"


def faults_of_garbage(garbage: bytes) -> Iterator[str]:
    """Send bytes that are no HTTP; yield what is wrong with the refusal."""
    with socket.create_connection((HOST, PORT), timeout=_WITHIN_S) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    if not status.startswith("HTTP/1.1 400"):
        yield f"is answered with {status!r}"
        return
    headers = {
        name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)
    }
    yield from _faults_of_problem(headers, body, 400)


def main() -> int:
    """Send every request; 1: one was not refused as it must be."""
    connection = http.client.HTTPConnection(HOST, PORT, timeout=_WITHIN_S)
    connection.request("GET", _DOCUMENT)
    document = json.loads(connection.getresponse().read())
    connection.close()
    faults, sent = [], 0
    for request in hostile_requests(document, os.environ[TOKEN_VARIABLE]):
        sent += 1
        place = f"{request.method.upper()} {request.path}, {request.why}"
        faults += [f"{place}: {fault}" for fault in faults_of(request)]
    for garbage in _GARBAGE:
        sent += 1
        faults += [f"{garbage!r}: {fault}" for fault in faults_of_garbage(garbage)]
    sys.stdout.write(json.dumps({"refused": sent, "faults": faults}) + "\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())

"""Environment in which a proxy is used for other machines alone."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from appliance.model.proxies import without_proxy_to_itself
from tests.programs import run

PACKAGE = Path(__file__).parents[3] / "appliance"
PROXY = "http://proxy.corp:3128"
CLIENTS = {"urllib.request", "httpx", "requests", "aiohttp", "urllib3"}
"""Modules whose clients take proxies from the environment, unless they are made otherwise."""
MADE_OTHERWISE = PACKAGE / "system/http_client.py"
"""tests/unit/system/test_http_client.py proves it."""


@pytest.mark.parametrize(
    ("environment", "hosts"),
    [
        ({}, None),
        ({"NO_PROXY": "corp"}, None),
        ({"HTTPS_PROXY": ""}, None),
        ({"http_proxy": PROXY}, "localhost,127.0.0.1"),
        ({"HTTPS_PROXY": PROXY}, "localhost,127.0.0.1"),
        ({"ALL_PROXY": "socks5://proxy.corp"}, "localhost,127.0.0.1"),
        ({"grpc_proxy": PROXY, "no_proxy": "a , .corp,"}, "a,.corp,localhost,127.0.0.1"),
        ({"Http_Proxy": PROXY, "no_proxy": "a", "NO_PROXY": "b,a"}, "a,b,localhost,127.0.0.1"),
        ({"http_proxy": PROXY, "NO_PROXY": "127.0.0.1"}, "127.0.0.1,localhost"),
    ],
)
def test_no_proxy_is_used_for_this_machine(
    environment: Mapping[str, str], hosts: str | None
) -> None:
    """Both spellings have all hosts; an environment without a proxy stays as it is."""
    found = without_proxy_to_itself(environment)
    expected = {} if hosts is None else {"no_proxy": hosts, "NO_PROXY": hosts}
    assert found == {**environment, **expected}
    assert without_proxy_to_itself(found) == found


def test_pythons_own_client_goes_direct() -> None:
    """The rule of urllib, which requests and httpx follow, for the addresses of engines."""
    code = "from urllib.request import proxy_bypass as p; print(p('127.0.0.1:8022'), p('localhost'), p('hf.co'))"
    environment = without_proxy_to_itself({"HTTP_PROXY": PROXY, "PATH": "/usr/bin:/bin"})
    assert run(["python3", "-c", code], environment=environment).stdout.split() == [
        "True",
        "True",
        "False",
    ]


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (str(node.module), *(f"{node.module}.{one.name}" for one in node.names))


def test_no_client_of_ours_asks_the_environment_for_a_proxy() -> None:
    """Daemons and command reach engines, gateway and targets by clients that know no proxy."""
    found = [file for file in PACKAGE.rglob("*.py") if CLIENTS & {*imports(file)}]
    assert found == [MADE_OTHERWISE]

"""Hosts and targets: who is meant, and what is not for clients."""

from tests.smuggling.cases import (
    BODY,
    SMUGGLED,
    Case,
    Taken,
    get,
    got,
    refused,
    request,
    taken,
)


def _host(*lines: bytes, start: bytes = b"GET /v1/thing HTTP/1.1") -> bytes:
    return request(start=start, host=b"".join(line + b"\r\n" for line in lines))


_HOSTS = {
    "none": (),
    "twice-equal": (b"Host: x", b"Host: x"),
    "twice-unequal": (b"Host: x", b"Host: y"),
    "twice-other-case": (b"Host: x", b"hOST: y"),
    "thrice": (b"Host: x", b"Host: x", b"Host: x"),
    "space-before-colon": (b"Host : x",),
    "space-in-front": (b" Host: x",),
    "folded": (b"Host:\r\n x",),
    "second-folded-in": (b"Host: x\r\n Host: y",),
    "nul": (b"Host: x\0y",),
    "bare-lf": (b"Host: x\nHost: y",),
    "bare-cr": (b"Host: x\rHost: y",),
    "space-inside": (b"Host: x y",),
    "comma": (b"Host: x, y",),
    "with-a-path": (b"Host: x/v1",),
    "with-a-query": (b"Host: x?y",),
    "with-a-fragment": (b"Host: x#y",),
    "with-a-user": (b"Host: u@x",),
    "with-a-scheme": (b"Host: http://x",),
    "with-a-backslash": (b"Host: x\\y",),
    "high-byte": (b"Host: x\xff",),
    "angle-brackets": (b"Host: <x>",),
}

# Whatever comes of these, the engine never sees them: its own paths are not for clients, however
# they are written.
_ADMIN = (
    b"/metrics",
    b"/metrics?x",
    b"/metrics/",
    b"/%6detrics",
    b"/%6Detrics",
    b"/%6d%65%74%72%69%63%73",
    b"/m%65trics?x=%2f",
    b"//metrics",
    b"///metrics",
    b"/./metrics",
    b"/x/../metrics",
    b"/v1/../metrics",
    b"/v1/../../metrics",
    b"/v1/%2e%2e/metrics",
    b"/v1/%2E./metrics",
    b"/v1/..%2fmetrics",
    b"/v1%2f..%2fmetrics",
    b"/%2fmetrics",
    b"/%2e/metrics",
    b"/metrics%00",
    b"/metrics%20",
    b"/metrics%3fx",
    b"/metrics;x",
    b"/METRICS",
    b"/Metrics",
    b"/slots",
    b"/slots/0?action=erase",
    b"/SLOTS/0",
    b"/s%6cots/0?action=save",
    b"/lora-adapters",
    b"/lora%2dadapters",
    b"/v1/load_lora_adapter",
    b"/v1/unload_lora_adapter",
    b"/v1//load_lora_adapter",
    b"/v1/./load_lora_adapter",
    b"/v1%2fload_lora_adapter",
    b"/v1/load%5florA_adapter",
    b"/sleep",
    b"/sleep?level=2",
    b"/wake_up",
    b"/is_sleeping",
    b"/collective_rpc",
    b"/reset_prefix_cache",
    b"/server_info",
    b"/start_profile",
    b"/stop_profile",
    b"/models/load",
    b"/models/unload",
)

_ODD_TARGETS = {
    "backslash": b"\\metrics",
    "backslash-dots": b"/v1/..\\..\\metrics",
    "fragment": b"/v1/thing#x",
    "no-slash": b"v1/thing",
    "only-a-question-mark": b"?x",
    "asterisk-at-get": b"*",
    "authority": b"x:80",
    "unicode": "/v1/ä".encode(),
    "percent-cut": b"/v1/%",
    "percent-cut-later": b"/v1/%4",
    "percent-no-hex": b"/v1/%zz",
    "percent-nul": b"/v1/%00",
    "percent-line-end": b"/v1/%0d%0aX:%20y",
    "percent-twice": b"/v1/%252e%252e/metrics",
}

CASES: tuple[Case, ...] = (
    *(refused(f"host-{name}", _host(*lines) + SMUGGLED) for name, lines in _HOSTS.items()),
    taken("host-with-a-port", _host(b"Host: x:8010"), got()),
    taken("host-address", _host(b"Host: 127.0.0.1:8010"), got()),
    taken("host-address-of-ip6", _host(b"Host: [::1]:8010"), got()),
    taken("host-in-capitals", _host(b"HOST: X"), got()),
    taken("host-last", request(b"Host: x", start=b"GET /v1/thing HTTP/1.1", host=b""), got()),
    refused("host-empty", _host(b"Host:")),
    taken("host-none-at-http-1.0", _host(start=b"GET /v1/thing HTTP/1.0"), got(), closes=True),
    refused(
        "host-twice-at-http-1.0", _host(b"Host: x", b"Host: y", start=b"GET /v1/thing HTTP/1.0")
    ),
    taken(
        "host-absolute-the-same", _host(b"Host: x", start=b"GET http://x/v1/thing HTTP/1.1"), got()
    ),
    taken(
        "host-absolute-with-port",
        _host(b"Host: x:8010", start=b"GET http://x:8010/v1/thing HTTP/1.1"),
        got(),
    ),
    refused(
        "host-absolute-another",
        _host(b"Host: x", start=b"GET http://y/v1/thing HTTP/1.1"),
        400,
        421,
    ),
    refused(
        "host-absolute-another-port",
        _host(b"Host: x:1", start=b"GET http://x:2/v1/thing HTTP/1.1"),
        400,
        421,
    ),
    refused(
        "host-absolute-with-a-user",
        _host(b"Host: x", start=b"GET http://u@x/v1/thing HTTP/1.1"),
        400,
        421,
    ),
    refused("host-absolute-without-host", _host(start=b"GET http://x/v1/thing HTTP/1.1"), 400),
    refused(
        "host-absolute-of-nobody",
        _host(b"Host: x", start=b"GET http:///v1/thing HTTP/1.1"),
        400,
        421,
    ),
    refused(
        "host-absolute-without-slashes",
        _host(b"Host: x", start=b"GET http:x/v1/thing HTTP/1.1"),
        400,
        421,
    ),
    refused(
        "host-absolute-of-a-file",
        _host(b"Host: x", start=b"GET file:///etc/passwd HTTP/1.1"),
        400,
        421,
    ),
    refused(
        "host-absolute-of-ftp", _host(b"Host: x", start=b"GET ftp://x/v1/thing HTTP/1.1"), 400, 421
    ),
    refused(
        "host-absolute-admin", _host(b"Host: x", start=b"GET http://x/metrics HTTP/1.1"), 400, 403
    ),
    refused("host-authority", _host(b"Host: x", start=b"GET x:80 HTTP/1.1"), 400),
    *(refused(f"admin-{n:02d}-get", get(target), 400, 403) for n, target in enumerate(_ADMIN)),
    *(
        refused(
            f"admin-{n:02d}-post",
            request(b"Content-Length: 13", start=b"POST " + target + b" HTTP/1.1", body=BODY),
            400,
            403,
        )
        for n, target in enumerate(_ADMIN)
    ),
    *(refused(f"target-{name}", get(target), 400, 403) for name, target in _ODD_TARGETS.items()),
    taken("target-query", get(b"/v1/thing?x=1&y=/../metrics"), got(b"/v1/thing?x=1&y=/../metrics")),
    taken("target-percent", get(b"/v1/thing%C3%A4"), got(b"/v1/thing%C3%A4")),
    refused("target-percent-space", get(b"/v1/thing%20x")),
    taken("target-quote-and-brackets", get(b'/v1/"<x>'), got(b'/v1/"<x>')),
    # Nothing in this century takes these bytes for dots.
    taken(
        "target-percent-overlong",
        get(b"/v1/%c0%ae%c0%ae/metrics"),
        got(b"/v1/%c0%ae%c0%ae/metrics"),
    ),
    taken(
        "target-all-that-is-allowed",
        get(b"/v1/-._~!$&'()*+,=:@x"),
        got(b"/v1/-._~!$&'()*+,=:@x"),
    ),
    taken(
        "target-asterisk-of-options",
        request(start=b"OPTIONS * HTTP/1.1"),
        Taken(method=b"OPTIONS", target=b"*", body=b""),
    ),
)

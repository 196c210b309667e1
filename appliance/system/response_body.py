"""Bounded reading of a response's body with the standard library's HTTP client."""

import http.client


def read_body(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    """Return a body, or as much of its beginning as `most_bytes`.

    A chunk that says that it has -1 bytes makes `HTTPResponse.read` read until the server's end.

    Raises:
        OSError: the connection failed.
        http.client.HTTPException: the body ends too early, or is not as HTTP says.
    """
    if not response.chunked:
        return response.read(most_bytes)
    content = bytearray()
    while len(content) < most_bytes and (part := response.read1(most_bytes - len(content))):
        content += part
    return bytes(content[:most_bytes])

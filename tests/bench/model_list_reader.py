"""Reader of the list of models, in a box: ``python3 model_list_reader.py PORT NAME SECONDS``. Standard library only.

Asks for the list every few milliseconds, in turns on a kept connection and on a new one, until a model has become
loaded and the time is over. The last line is JSON: the times in milliseconds, the number of entries, and the
values of the model's status in the order in which they came.
"""

import http.client
import json
import sys
import time

EVERY_S = 0.003
PATIENCE_S = 90.0


def listed(connection: http.client.HTTPConnection) -> bytes:
    """Return the list."""
    connection.request("GET", "/v1/models")
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != http.client.OK:
        raise SystemExit(f"{answer.status}: {body[:300]!r}")
    return body


def main(port: int, name: str, seconds: float) -> None:
    """Ask, and print the figures."""
    kept = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    kept_ms: list[float] = []
    new_ms: list[float] = []
    values: list[str] = []
    entries = 0
    began_s = time.monotonic()
    while (spent_s := time.monotonic() - began_s) < seconds or values[-1:] != ["loaded"]:
        if spent_s > PATIENCE_S:
            raise SystemExit(f"{name} did not become loaded: {values}")
        at_s = time.perf_counter()
        body = listed(kept)
        kept_ms.append((time.perf_counter() - at_s) * 1000)
        at_s = time.perf_counter()
        new = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        listed(new)
        new_ms.append((time.perf_counter() - at_s) * 1000)
        new.close()
        data = json.loads(body)["data"]
        entries = len(data)
        value = next(entry["status"]["value"] for entry in data if entry["id"] == name)
        if values[-1:] != [value]:
            values.append(value)
        time.sleep(EVERY_S)  # real time: the gateway of another process is measured
    sys.stdout.write(
        json.dumps({"kept_ms": kept_ms, "new_ms": new_ms, "entries": entries, "values": values})
    )
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))

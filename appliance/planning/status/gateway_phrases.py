"""What the gateway's part in an operation looks like to people."""


def waiting(requests: int) -> str:
    """How many requests are held; empty: none."""
    if not requests:
        return ""
    return "1 request waits" if requests == 1 else f"{requests} requests wait"


def drained(finished: int, cut: int, timeout_s: float) -> str:
    """How the requests in flight ended."""
    if not finished and not cut:
        return "no requests in flight"
    when = f"after {timeout_s:g} s" if timeout_s else "at once"
    parts = [f"{finished} finished"] if finished else []
    parts += [f"{cut} cut {when}"] if cut else []
    return ", ".join(parts)


def released(requests: int) -> str:
    """How many held requests go on; empty: none."""
    if not requests:
        return ""
    return "1 request goes on" if requests == 1 else f"{requests} requests go on"

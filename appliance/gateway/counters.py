"""What was observed of one profile, or of one key: a fixed amount of memory."""

from appliance.gateway.histograms import Histogram


class Figures:
    """Counts since the start of this process; times and speeds of the last minutes."""

    def __init__(self) -> None:
        self.requests = 0
        """That are over."""
        self.in_flight = 0
        self.queued = 0
        self.errors = 0
        self.gone = 0
        self.retried = 0
        self.bytes = 0
        self.output_tokens = 0
        self.used_s = 0.0
        self.moved_s = 0.0
        """When a byte of an answer last came; 0: never."""
        self.due_s = 0.0
        """Since when the engine owes bytes to the request that has waited longest; 0: to none."""
        self.wait = Histogram()
        self.ttft = Histogram()
        self.gap = Histogram()
        self._decoded = [0.0, 0.0]
        self._decode_s = [0.0, 0.0]

    def decoded(self, tokens: int, tok_s: float) -> None:
        """So many tokens came at that speed."""
        self._decoded[0] += tokens
        self._decode_s[0] += tokens / tok_s

    def turn(self) -> None:
        """Begin a new window."""
        for histogram in (self.wait, self.ttft, self.gap):
            histogram.turn()
        for sums in (self._decoded, self._decode_s):
            sums[:] = [0.0, sums[0]]

    def quiet_s(self, now_s: float) -> float | None:
        """For how long the engine has owed bytes and sent none at all; None: it owes none."""
        return round(now_s - max(self.moved_s, self.due_s), 1) if self.due_s else None

    def document(self, now_s: float) -> dict[str, object]:
        """For JSON."""
        decode_s = sum(self._decode_s)
        return {
            "requests": self.requests + self.in_flight + self.queued,
            "in_flight": self.in_flight,
            "queued": self.queued,
            "quiet_s": self.quiet_s(now_s),
            "errors": self.errors,
            "gone": self.gone,
            "retried": self.retried,
            "bytes": self.bytes,
            "output_tokens": self.output_tokens,
            "tok_s": round(sum(self._decoded) / decode_s, 2) if decode_s else None,
            "wait_ms": self.wait.percentiles_ms(),
            "ttft_ms": self.ttft.percentiles_ms(),
            "gap_ms": self.gap.percentiles_ms(),
        }

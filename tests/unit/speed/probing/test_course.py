"""Course of a probe."""

import pytest

from appliance.model.measurements import ProbeKind
from appliance.speed.probing.course import ProbeCourse


def course(decode_tok_s: float | None, prefill_tok_s: float | None) -> ProbeCourse:
    return ProbeCourse(
        kind=ProbeKind.SCHEDULED,
        prompts=("lru-cache", "prefill-512/p64"),
        output_tokens=64,
        decode_tok_s=decode_tok_s,
        prefill_tok_s=prefill_tok_s,
    )


def test_the_long_prompt_has_a_short_answer() -> None:
    """Only coding tasks have answers of the course's length."""
    assert course(1.0, 1.0).answer_tokens("lru-cache") == 64
    assert course(1.0, 1.0).answer_tokens("prefill-512/p64") == 8


@pytest.mark.parametrize(
    ("decode_tok_s", "prefill_tok_s", "limit_s"),
    [
        (None, 100.0, 120.0),
        (100.0, None, 120.0),
        (64.0, 300.0, 30.0 + 20 * 2.0),
        (1e9, 1e9, 30.0),
        (0.1, 100.0, 600.0),
    ],
)
def test_a_prompt_is_given_up_after_many_times_its_usual_time(
    decode_tok_s: float | None, prefill_tok_s: float | None, limit_s: float
) -> None:
    """An engine twenty times slower is still measured; no prompt takes more than ten minutes."""
    found = course(decode_tok_s, prefill_tok_s)
    assert found.limit_s("lru-cache") == pytest.approx(limit_s)
    assert found.limit_s("prefill-512/p64") <= 600.0

"""Sources that several traps share, in words for the reference."""

from typing import Final

FIELD: Final = "an operator's log of 100 experiments on two RTX 5060 Ti and a mini PC"
BENCHMARK: Final = "a benchmark on two RTX 3090 (sch0tten/local-llm-eval)"

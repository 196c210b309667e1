"""The corpus of requests, by what they abuse."""

from tests.smuggling.cases import Case, unique
from tests.smuggling.corpus import chunks, connections, encodings, heads, hosts, lengths

REQUESTS: tuple[Case, ...] = unique(
    case for part in (lengths, encodings, chunks, heads, hosts, connections) for case in part.CASES
)

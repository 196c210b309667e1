"""The subjects of pins, and what makes each."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.pins import apply_output, apply_sequences, cli_transcripts, screens, status_documents

AS_ROOT: Final = "cli-as-root"
"""The subject that only root can make."""
SUBJECTS: Final[Mapping[str, Callable[[], dict[str, str]]]] = {
    "apply": apply_output.make,
    "changes": apply_sequences.make,
    "status": status_documents.make,
    "screens": screens.make,
    "cli": cli_transcripts.make,
    AS_ROOT: cli_transcripts.make_as_root,
}

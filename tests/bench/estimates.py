"""Estimates of memory against the engines' own formulas: ``python -m tests.bench.estimates``.

Headers made from the public facts of well-known models (`estimate_models`) go through the estimator as a file's
would, in several runs each: one request and four, a shared cache, quantised caches, whole windows. Miniatures of
25 of them are loaded by the llama.cpp of the wheel, too, whose log says what it allocates. Caches and
states are compared with those that `estimate_truth` computes layer by layer, and the least that refuses a start
with the weights and caches that the engine cannot do without. The last line is JSON: ``{"models",
"worst_factor", "lower_bound_violations"}``; exit status 1 where a factor is outside 0.9 to 1.25.
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

from appliance.model.model_headers import Gguf, Model, Safetensors, Tensor, Value
from appliance.model.profile import Estimate
from appliance.profiles.estimates.estimating import estimated
from appliance.system.profile_files.loading import parse_profile
from tests.bench.estimate_engine import EngineError
from tests.bench.estimate_miniatures import CTX, loaded, miniatures
from tests.bench.estimate_models import GGUF_MODELS, HF_MODELS, GgufModel, HfModel
from tests.bench.estimate_truth import Run, VllmRun, llama_bytes, vllm_bytes

MIB = 1 << 20
WITHIN = (0.9, 1.25)
ROUNDING_BYTES = 32 << 10
"""Error of the sums in the engine's log, which has hundredths of a MiB."""
LLAMA_SERVER = (
    'engine = "llama-server"\nbinary = "/b"\nmodel = "/m.gguf"\nport = 9000\ngpus = [0]\n'
)
VLLM = 'engine = "vllm"\nbinary = "/b"\nmodel = "/m"\nport = 9000\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One run of one model."""

    model: str
    run: str
    estimate_bytes: int
    """Cache and state by the estimate."""
    truth_bytes: int
    least_bytes: int
    """Bytes that refuse a start where the GPUs have fewer."""
    needed_bytes: int
    """Bytes of weights, cache and state that the engine takes at least."""

    @property
    def factor(self) -> float:
        """Return the estimate over the truth; 1 where both are nothing."""
        if not self.truth_bytes:
            return math.inf if self.estimate_bytes else 1.0
        return self.estimate_bytes / self.truth_bytes

    @property
    def violates(self) -> bool:
        """Whether a start would be refused that fits."""
        return self.least_bytes > self.needed_bytes


def runs_of(model: GgufModel) -> Iterator[tuple[str, Run]]:
    """Return the runs of a model, and the lines of a profile for each."""
    one = Run(ctx=model.ctx)
    table = "[llama-server]\n"
    yield f"ctx = {model.ctx}\n", one
    yield (
        f'ctx = {model.ctx // 4}\nparallel = 4\nkv = "q8_0"\n{table}ubatch = 1024\n',
        replace(
            one, ctx=model.ctx // 4, requests=4, ubatch=1024, key_type="q8_0", value_type="q8_0"
        ),
    )
    mixed = 'kv = { k = "q8_0", v = "q4_0" }\n'
    yield (
        f"ctx = {model.ctx // 2}\nparallel = 2\n{mixed}{table}kv_unified = true\n",
        replace(
            one,
            ctx=model.ctx // 2,
            requests=2,
            unified=True,
            key_type="q8_0",
            value_type="q4_0",
        ),
    )
    full = f"{table}swa_full = true\n"
    yield f"ctx = {model.ctx // 8}\n{full}", replace(one, ctx=model.ctx // 8, swa_full=True)


def header_of(model: GgufModel) -> Gguf:
    """Return the header of a model, with a tensor of its weights in each layer."""
    metadata: dict[str, Value] = {"general.architecture": model.architecture}
    metadata |= {f"{model.architecture}.{name}": value for name, value in model.keys.items()}
    weights = model.layer_mib * MIB
    count = len(model.layers) + model.drafting
    tensors = [Tensor(f"blk.{i}.ffn_down.weight", weights) for i in range(count)]
    tensors.append(Tensor("token_embd.weight", weights))
    return Gguf(metadata=metadata, tensors=tuple(tensors), file_bytes=weights * (count + 1))


def compare_gguf(model: GgufModel) -> Iterator[Comparison]:
    """Return the comparisons of a model under llama.cpp."""
    header = header_of(model)
    for lines, run in runs_of(model):
        found = _estimate(LLAMA_SERVER + lines, Model(main=header))
        truth = llama_bytes(model.layers, run)
        yield Comparison(
            model=model.name,
            run=_told(lines),
            estimate_bytes=found.vram.cache_bytes + found.vram.state_bytes,
            truth_bytes=truth,
            least_bytes=found.least_vram_bytes,
            needed_bytes=model.layer_mib * MIB * len(model.layers) + truth,
        )


def compare_hf(model: HfModel) -> Iterator[Comparison]:
    """Return the comparison of a model under vLLM."""
    layer = 256 * MIB
    weights = Safetensors(
        config=model.config,
        weights_bytes=layer * (len(model.layers) + 2),
        file_bytes=layer * (len(model.layers) + 2),
        draft_bytes=layer,
        least_layer_bytes=(layer,) * (len(model.layers) + 1),
    )
    kv = f'kv = "{model.kv}"\n' if model.kv else ""
    lines = f"ctx = {model.ctx}\nparallel = 1\n{kv}[vllm]\ntensor_parallel = {model.tensor}\n"
    found = _estimate(VLLM + lines, Model(main=weights))
    run = VllmRun(ctx=model.ctx, tensor=model.tensor, element_bytes=model.element_bytes)
    truth = vllm_bytes(model.layers, run)
    yield Comparison(
        model=f"{model.name} (vLLM)",
        run=_told(lines),
        estimate_bytes=found.vram.cache_bytes + found.vram.state_bytes,
        truth_bytes=truth,
        least_bytes=found.least_vram_bytes,
        needed_bytes=layer * len(model.layers),
    )


def _estimate(text: str, model: Model) -> Estimate:
    found = estimated(parse_profile("p", text.encode()), "/m", lambda _: model)
    if found.estimate is None:
        raise ValueError(found.problem)
    return found.estimate


def _told(lines: str) -> str:
    return ", ".join(line for line in lines.splitlines() if line and not line.startswith("["))


def compare_engine() -> Iterator[Comparison]:
    """Return the comparisons of miniatures with what the llama.cpp in the wheel allocates."""
    for name, metadata in miniatures():
        header = Gguf(metadata=metadata, tensors=(), file_bytes=0)
        found = _estimate(f"{LLAMA_SERVER}ctx = {CTX}\n", Model(main=header))
        try:
            real = loaded(metadata)
        except EngineError as error:
            sys.stdout.write(f"{name}: not loaded: {str(error)[-300:]}\n")
            continue
        truth = real.cache_bytes + real.state_bytes
        yield Comparison(
            model=name,
            run="as a miniature, in the engine itself",
            estimate_bytes=found.vram.cache_bytes + found.vram.state_bytes,
            truth_bytes=truth,
            least_bytes=found.least_vram_bytes,
            needed_bytes=truth + ROUNDING_BYTES,
        )


def comparisons() -> list[Comparison]:
    """Return the comparisons of all models by formulas."""
    found = [one for model in GGUF_MODELS for one in compare_gguf(model)]
    return found + [one for model in HF_MODELS for one in compare_hf(model)]


def figures_of(found: list[Comparison]) -> Mapping[str, float | int]:
    """Return the figures of the last line."""
    worst = max(found, key=lambda one: abs(math.log(one.factor or 1e-9)))
    return {
        "models": len({one.model.removesuffix(" (vLLM)") for one in found}),
        "worst_factor": round(worst.factor, 4),
        "lower_bound_violations": sum(one.violates for one in found),
    }


def main() -> int:
    """Print a line for each run, and the figures."""
    found = comparisons()
    if find_spec("xllamacpp") is not None:
        found += compare_engine()
    for one in found:
        estimate, truth = one.estimate_bytes / MIB, one.truth_bytes / MIB
        bound = "REFUSES TOO MUCH" if one.violates else ""
        sys.stdout.write(
            f"{one.model:34} {estimate:10,.1f} {truth:10,.1f} MiB {one.factor:7.3f} {bound} {one.run}\n"
        )
    figures = figures_of(found)
    sys.stdout.write(json.dumps(figures) + "\n")
    fine = WITHIN[0] <= figures["worst_factor"] <= WITHIN[1]
    return 0 if fine and not figures["lower_bound_violations"] else 1


if __name__ == "__main__":
    sys.exit(main())

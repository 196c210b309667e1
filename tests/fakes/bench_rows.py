"""Rows of a bench, with times that are easy to check by hand."""

from appliance.model.measurements import BoxGpus, GpuEvidence, GpuSample
from appliance.speed.bench_rows import Part, RequestRow


def bench_row(
    *,
    sent_s: float = 0.0,
    wall_s: float = 10.0,
    tokens: int = 100,
    concurrency: int = 1,
    run: int = 1,
    prompt: str = "lru-cache",
    error: str = "",
    part: Part = Part.SINGLE,
    arrivals_s: tuple[float, ...] = (),
) -> RequestRow:
    """Return a row; a failed one has no tokens."""
    return RequestRow(
        profile="a",
        part=part,
        run=run,
        concurrency=concurrency,
        prompt=prompt,
        sent_s=sent_s,
        arrivals_s=arrivals_s,
        ended_s=sent_s + wall_s,
        input_tokens=0 if error else 50,
        output_tokens=0 if error else tokens,
        error=error,
    )


def gpus_with(*energies_j: float | None) -> BoxGpus:
    """Return a reading of GPUs with these energy counters."""
    samples = tuple(
        GpuSample(index=number, evidence=GpuEvidence(uuid=f"GPU-{number}", energy_j=energy_j))
        for number, energy_j in enumerate(energies_j)
    )
    return BoxGpus(taken_s=1.0, gpus=samples, driver="580.1")

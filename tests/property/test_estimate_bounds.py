"""Estimates that refuse are lower bounds: random models, whose layers are known one by one, and random profiles."""

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.model.model_headers import Gguf, Model, Safetensors, Tensor, Value
from appliance.profiles.estimates.estimating import Estimated, estimated
from appliance.system.profile_files.loading import parse_profile
from tests.bench.estimate_truth import Layer, Run, llama_layer_bytes

HEAD = 'engine = "llama-server"\nbinary = "/b"\nmodel = "/m.gguf"\nport = 9000\ngpus = [0]\n'
KINDS = ("f16", "q8_0", "q4_0", "f32")
ARCHITECTURES = ("gemma4", "gemma4", "llama", "jamba", "deepseek2", "new-model")
EXPERTS, DENSE, ATTENTION = "ffn_up_exps", "ffn_down", "attn_q"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and a profile, with what the engine then puts on its GPU at least."""

    model: Gguf
    profile: str
    needed_bytes: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a model by its layers, write them as a header would, and count what a profile puts on the GPU."""
    architecture = draw(st.sampled_from(ARCHITECTURES))
    count = draw(st.integers(1, 12))
    drafting = draw(st.integers(0, 2))
    blocks = count + drafting
    latent = architecture == "deepseek2"
    head, swa_head = draw(st.sampled_from([64, 128])), draw(st.sampled_from([64, 256]))
    window = draw(st.sampled_from([0, 128, 1024])) if architecture == "gemma4" else 0
    slides = [bool(window) and draw(st.booleans()) for _ in range(blocks)]
    heads = [draw(st.integers(1, 8)) for _ in range(blocks)]
    if architecture == "jamba":
        heads = [n if draw(st.booleans()) else 0 for n in heads]
    shared = draw(st.integers(0, blocks)) if architecture == "gemma4" else 0
    inner, state, conv = 256, 16, draw(st.integers(1, 4))
    layers = []
    for i in range(count):
        size = swa_head if slides[i] else head
        keys = heads[i] * size if i < blocks - shared else 0
        if heads[i]:
            values = 0 if latent else keys
            layers.append(Layer(keys=keys, values=values, window=window if slides[i] else 0))
        else:
            layers.append(Layer(convolution=(conv - 1) * inner, state=state * inner))
    keys_of: dict[str, Value] = {
        "block_count": blocks,
        "embedding_length": 512,
        "context_length": 4096,
        "nextn_predict_layers": drafting,
        "attention.head_count": 8,
        "attention.head_count_kv": tuple(heads),
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.key_length_swa": swa_head,
        "attention.value_length_swa": swa_head,
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": tuple(slides),
        "attention.shared_kv_layers": shared,
    }
    if architecture == "jamba":
        keys_of |= {"ssm.conv_kernel": conv, "ssm.inner_size": inner, "ssm.state_size": state}
    if latent:
        keys_of |= {"attention.key_length_mla": 96, "attention.value_length_mla": 64}
    metadata: dict[str, Value] = {f"{architecture}.{k}": v for k, v in keys_of.items()}
    tensors = [
        Tensor(f"blk.{i}.{name}.weight", draw(st.integers(1, 1 << 30)))
        for i in range(blocks)
        for name in (ATTENTION, DENSE, EXPERTS)
    ]
    run = Run(
        ctx=draw(st.integers(16, 9000)),
        requests=draw(st.integers(1, 4)),
        unified=draw(st.booleans()),
        ubatch=draw(st.sampled_from([64, 512, 1024])),
        key_type=draw(st.sampled_from(KINDS)),
        value_type=draw(st.sampled_from(KINDS)),
        swa_full=draw(st.booleans()),
    )
    if run.requests == 1:
        run = replace(run, unified=False)
    if run.ubatch > run.ctx * (1 if run.unified else run.requests):
        run = replace(run, ubatch=64, ctx=max(run.ctx, 64))
    offloaded = draw(st.integers(0, blocks + 2))
    on_cpu, dense_on_cpu = draw(st.integers(0, blocks)), draw(st.integers(0, blocks))
    drafts = draw(st.booleans())
    first = max(0, blocks + 1 - offloaded) if offloaded else blocks
    needed = sum(llama_layer_bytes(layer, run) for layer in layers[first:])
    for tensor in tensors:
        layer, name = int(tensor.name.split(".")[1]), tensor.name.split(".")[2]
        kept = (name == EXPERTS and layer < on_cpu) or (name == DENSE and layer < dense_on_cpu)
        if layer >= first and not kept and layer < (blocks if drafts and drafting else count):
            needed += tensor.stored_bytes
    return Case(
        model=Gguf(
            metadata=metadata | {"general.architecture": architecture},
            tensors=tuple(tensors),
            file_bytes=0,
        ),
        profile=_profile(run, offloaded, on_cpu, dense_on_cpu, drafts=drafts),
        needed_bytes=needed,
    )


def _profile(run: Run, offloaded: int, on_cpu: int, dense_on_cpu: int, *, drafts: bool) -> str:
    ffn = f"n_cpu_ffn = {dense_on_cpu}\n" if dense_on_cpu else ""
    moe = f"n_cpu_moe = {on_cpu}\n" if on_cpu else ""
    speculative = 'speculative = { method = "mtp", tokens = 2 }\n' if drafts else ""
    return (
        f"{HEAD}ctx = {run.ctx}\nparallel = {run.requests}\n{speculative}"
        f'kv = {{ k = "{run.key_type}", v = "{run.value_type}" }}\n'
        f"[llama-server]\ngpu_layers = {offloaded}\nubatch = {run.ubatch}\n"
        f"kv_unified = {str(run.unified).lower()}\nswa_full = {str(run.swa_full).lower()}\n{moe}{ffn}"
    )


def _estimated(text: str, model: Model) -> Estimated:
    return estimated(parse_profile("p", text.encode()), "/m", lambda _: model)


@settings(max_examples=4 * settings().max_examples)
@given(cases())
def test_no_start_is_refused_that_fits(case: Case) -> None:
    """The least is never more than the engine's weights, caches and states on its GPU."""
    found = _estimated(case.profile, Model(main=case.model)).estimate
    assert found is not None
    assert found.least_vram_bytes <= case.needed_bytes
    assert found.least_vram_bytes <= found.vram_bytes


@given(
    st.lists(st.integers(0, 1 << 32), min_size=1, max_size=8),
    st.integers(0, 3),
    st.sampled_from(["", "fp8", "bitsandbytes"]),
    st.sampled_from(["", "awq"]),
    st.integers(0, 8),
)
def test_no_quantised_load_is_refused_that_fits(
    layers: list[int],
    drafting: int,
    quantisation: str,
    method: str,
    offloaded_gib: int,
) -> None:
    """Of safetensors the least is that of the layers, or a quarter of it, less what is offloaded."""
    count = max(1, len(layers) - drafting)
    config: dict[str, object] = {
        "num_hidden_layers": count,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
    }
    if method:
        config["quantization_config"] = {"quant_method": method}
    model = Safetensors(
        config=config,
        weights_bytes=sum(layers),
        file_bytes=sum(layers),
        least_layer_bytes=tuple(layers),
    )
    table = f'quantization = "{quantisation}"\n' if quantisation else ""
    text = (
        'engine = "vllm"\nbinary = "/b"\nmodel = "/m"\nport = 9000\n'
        f"[vllm]\ncpu_offload_gb = {offloaded_gib}\n{table}"
    )
    found = _estimated(text, Model(main=model)).estimate
    assert found is not None
    loaded = sum(layers[:count])
    if quantisation and not method:
        loaded = loaded // 4
    assert found.least_vram_bytes <= max(0, loaded - (offloaded_gib << 30))
